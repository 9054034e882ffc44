"""Which children are ours, which need a write, which are left over. Pure.

Ours is what names the resource as its controller by UID and carries our labels: a namesake of somebody
else, or of an earlier resource of the same name, is neither written nor deleted.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator import names
from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core import fingerprint
from couchbase_lm_operator.core.children.drift import first_difference
from couchbase_lm_operator.core.verdict import Proceed, Refuse, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from couchbase_lm_operator.core.observed import Manifest


def digest(value: object, length: int = 16) -> str:
    """Return the first hex digits of the hash of a JSON value, whatever the order of its keys."""
    return fingerprint.digest(value)[:length]


def owner_reference(resource: Manifest) -> dict[str, Any]:
    """Return the reference that makes a child go when the resource goes.

    ``blockOwnerDeletion`` stays false: true would need a right on the resource's finalizers.
    """
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": resource["metadata"]["name"],
        "uid": resource["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": False,
    }


def adopted(manifest: Manifest, resource: Manifest) -> Manifest:
    """Return a copy with owner, labels and the hash of what we render."""
    child = copy.deepcopy(manifest)
    metadata = child["metadata"]
    metadata["namespace"] = resource["metadata"]["namespace"]
    metadata["labels"] = {**metadata.get("labels", {}), **names.child_labels(resource["metadata"]["name"])}
    metadata["ownerReferences"] = [owner_reference(resource)]
    metadata["annotations"] = {**metadata.get("annotations", {}), names.ANNOTATION_RENDERED_HASH: digest(child)}
    return child


def key(manifest: Manifest) -> tuple[str, str]:
    """Return (kind, name), by which children are told apart."""
    return str(manifest["kind"]), str(manifest["metadata"]["name"])


def is_ours(live: Manifest, resource_uid: str) -> bool:
    """Say whether the resource is the controller of a live object and our labels are on it."""
    metadata = live["metadata"]
    owners = metadata.get("ownerReferences") or []
    is_controlled = any(owner.get("controller") and owner.get("uid") == resource_uid for owner in owners)
    return is_controlled and (metadata.get("labels") or {}).get(names.LABEL_MANAGED_BY) == names.FIELD_MANAGER


def check_names_are_free(
    rendered: Iterable[Manifest], children: Mapping[tuple[str, str], Manifest], resource_uid: str
) -> Verdict:
    """Refuse when an object of a needed name belongs to somebody else.

    What a deleted resource of the same name left behind on purpose (an orphaning delete) has no controller
    and still our mark: it is taken over, so that its pods go on running.
    """
    for manifest in rendered:
        live = children.get(key(manifest))
        if live is None or is_takeable(live, resource_uid):
            continue
        kind, name = key(manifest)
        return Refuse(
            Reason.CHILD_NOT_OURS,
            f"{kind} {name} exists and does not belong to this resource: delete it, or give this resource "
            "another metadata.name.",
        )
    return Proceed()


def is_takeable(live: Manifest, resource_uid: str) -> bool:
    """Say whether a live object is the resource's, or was left by an earlier one for it to take over."""
    owners = live["metadata"].get("ownerReferences") or []
    if any(owner.get("uid") == resource_uid for owner in owners):
        return True
    has_controller = any(owner.get("controller") for owner in owners)
    return not has_controller and names.ANNOTATION_RENDERED_HASH in (live["metadata"].get("annotations") or {})


def difference(manifest: Manifest, live: Manifest | None) -> str | None:
    """Return why an adopted manifest must be applied, or None when the live object holds all of it."""
    if live is None:
        return "it does not exist"
    wanted = manifest["metadata"]["annotations"][names.ANNOTATION_RENDERED_HASH]
    found = (live["metadata"].get("annotations") or {}).get(names.ANNOTATION_RENDERED_HASH)
    if wanted != found:
        return "what is rendered changed"
    path = first_difference(manifest, live)
    return None if path is None else f"{path} was changed"


def surplus(
    rendered: Iterable[Manifest], children: Mapping[tuple[str, str], Manifest], resource_uid: str
) -> list[Manifest]:
    """Return our live children that are no longer rendered."""
    wanted = {key(manifest) for manifest in rendered}
    return [
        live
        for child_key, live in sorted(children.items())
        if child_key not in wanted and is_ours(live, resource_uid) and not live["metadata"].get("deletionTimestamp")
    ]
