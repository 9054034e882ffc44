"""What we applied to a live object, told by the API server itself. Pure.

``metadata.managedFields`` names every field that was applied under our field manager. Only those, with their live
values, make up what we rendered: defaults of the server and fields of others are left out, so that applying the
result again changes nothing and takes nothing from anybody.

Source of the format: FieldsV1 of meta/v1 (``f:`` a field, ``k:`` an element of a list by its keys, ``v:`` one by its
value, ``.`` the object itself).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator import names

if TYPE_CHECKING:
    from couchbase_lm_operator.core.observed import Manifest


def applied_template(deployment: Manifest) -> dict[str, Any]:
    """Return the pod template of a live Deployment as we applied it; all of it when nobody wrote down what that was."""
    template = dict(deployment["spec"]["template"])
    entries = deployment["metadata"].get("managedFields") or []
    for entry in entries:
        if entry.get("manager") == names.FIELD_MANAGER and entry.get("operation") == "Apply":
            fields = ((entry.get("fieldsV1") or {}).get("f:spec") or {}).get("f:template")
            return dict(_part(fields, template)) if fields else template
    return template


def _part(fields: dict[str, Any], live: Any) -> Any:
    if not fields:  # a leaf: all of the value is ours
        return live
    if isinstance(live, dict):
        owned = {marker[2:]: below for marker, below in fields.items() if marker.startswith("f:")}
        return {name: _part(below, live[name]) for name, below in owned.items() if name in live}
    if isinstance(live, list):
        return [part for item in live for part in _element(fields, item)]
    return live


def _element(fields: dict[str, Any], item: Any) -> list[Any]:
    """Return our part of an element of a list, or nothing when it is not ours."""
    for marker, below in fields.items():
        if marker.startswith("v:") and json.loads(marker[2:]) == item:
            return [item]
        if marker.startswith("k:") and isinstance(item, dict):
            keys = json.loads(marker[2:])
            if all(item.get(key) == value for key, value in keys.items()):
                return [item if not below else {**keys, **_part(below, item)}]
    return []
