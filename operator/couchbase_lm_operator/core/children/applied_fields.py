"""What we applied to a live object, told by the API server itself. Pure.

``metadata.managedFields`` names every field that was applied under our field manager. Only those, with their live
values, make up what we rendered: defaults of the server and fields of others are left out, so that applying the
result again changes nothing and takes nothing from anybody.

A field that somebody else writes stops being ours, also the image of a container. Without it the result would be no
pod template any more, and what was ours in the first place is told nowhere. So a field of others counts with the
value that runs where it stands in something that is ours; what others put beside ours does not: an element of a
list, an annotation, a label.

Source of the format: FieldsV1 of meta/v1 (``f:`` a field, ``k:`` an element of a list by its keys, ``v:`` one by its
value, ``.`` the object itself).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator import names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from couchbase_lm_operator.core.observed import Manifest

Fields = dict[str, Any]


def applied_template(deployment: Manifest) -> dict[str, Any]:
    """Return the pod template of a live Deployment as we applied it; all of it when nobody wrote down what that was."""
    template = dict(deployment["spec"]["template"])
    ours, theirs = _managed(deployment)
    return _template(ours, theirs, template) if ours else template


def has_fields_of_others(deployment: Manifest) -> bool:
    """Say whether ``applied_template`` holds what others wrote: it is then not quite what we applied."""
    template = dict(deployment["spec"]["template"])
    ours, theirs = _managed(deployment)
    return bool(ours) and _template(ours, theirs, template) != _template(ours, (), template)


def _managed(deployment: Manifest) -> tuple[Fields, list[Fields]]:
    """Return our fields of the pod template, none when it is not told which they are, and those of each other."""
    ours: Fields = {}
    theirs: list[Fields] = []
    for entry in deployment["metadata"].get("managedFields") or []:
        fields = ((entry.get("fieldsV1") or {}).get("f:spec") or {}).get("f:template") or {}
        if entry.get("manager") == names.FIELD_MANAGER and entry.get("operation") == "Apply":
            ours = fields
        elif fields:
            theirs.append(fields)
    return ours, theirs


def _template(ours: Fields, theirs: Sequence[Fields], live: dict[str, Any]) -> dict[str, Any]:
    # labels and annotations are for everybody: what others add there, as a restart, is theirs
    beside = [{marker: below for marker, below in fields.items() if marker != "f:metadata"} for fields in theirs]
    return dict(_part(ours, beside, live))


def _part(ours: Fields, theirs: Sequence[Fields], live: Any) -> Any:
    if not ours:  # a leaf: all of the value is ours
        return live
    if isinstance(live, dict):
        taken = {marker for fields in theirs for marker in fields} - set(ours)
        return {
            name: _part(ours.get(f"f:{name}", {}), _below(theirs, f"f:{name}"), value)
            for name, value in live.items()
            if f"f:{name}" in ours or f"f:{name}" in taken
        }
    if isinstance(live, list):
        return [part for item in live for part in _element(ours, theirs, item)]
    return live


def _element(ours: Fields, theirs: Sequence[Fields], item: Any) -> list[Any]:
    """Return our part of an element of a list, or nothing when it is not ours."""
    for marker, below in ours.items():
        if marker.startswith("v:") and json.loads(marker[2:]) == item:
            return [item]
        if marker.startswith("k:") and isinstance(item, dict):
            keys = json.loads(marker[2:])
            if all(item.get(key) == value for key, value in keys.items()):
                return [item if not below else {**keys, **_part(below, _below(theirs, marker), item)}]
    return []


def _below(theirs: Sequence[Fields], marker: str) -> list[Fields]:
    return [fields[marker] for fields in theirs if fields.get(marker)]
