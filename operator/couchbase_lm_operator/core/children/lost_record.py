"""The record of a pod template that was lost, from the Deployment that still runs it. Pure.

Whoever deletes a ControllerRevision must not roll pods: neither now nor with the next release of the operator,
which would render others. The Deployment says under which fields, and as which revision, its template was pinned;
the template itself is what we applied, and the facts are what status tells of it. A revision is the hash of what was
pinned, so that what this release itself pinned is known without any of that.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator import names
from couchbase_lm_operator.core.children.applied_fields import applied_template, has_fields_of_others
from couchbase_lm_operator.core.children.children import digest, is_takeable
from couchbase_lm_operator.core.children.drift import first_difference

if TYPE_CHECKING:
    from collections.abc import Mapping

    from couchbase_lm_operator.core.observed import Manifest

REVISION_DIGITS = 10
_REVISION = re.compile(rf"[0-9a-f]{{{REVISION_DIGITS}}}")


def deployment_of(resource: Manifest, children: Mapping[tuple[str, str], Manifest]) -> Manifest | None:
    """Return the live Deployment of a resource, if there is one that is not somebody else's."""
    metadata = resource["metadata"]
    live = children.get(("Deployment", str(metadata["name"])))
    return live if live is not None and is_takeable(live, str(metadata["uid"])) else None


def marks(deployment: Manifest | None) -> tuple[str, str]:
    """Return the hash of the fields and the revision of a Deployment's template; "" each when it does not tell.

    Anybody may edit annotations, and a revision becomes part of an object's name: what cannot be one tells nothing.
    """
    annotations = ((deployment or {}).get("metadata") or {}).get("annotations") or {}
    return (
        str(annotations.get(names.ANNOTATION_TEMPLATE_HASH, "")),
        _revision(annotations.get(names.ANNOTATION_TEMPLATE_REVISION)),
    )


def told_revision(resource: Manifest) -> str:
    """Return the revision that status says was in effect; "" when it tells none."""
    return _revision(((resource.get("status") or {}).get("workload") or {}).get("revision"))


def _revision(written: object) -> str:
    return written if isinstance(written, str) and _REVISION.fullmatch(written) else ""


def record_name(resource_name: str, deployment: Manifest | None) -> str:
    """Return the name of the record of a Deployment's template; "" when the Deployment does not tell."""
    _, revision = marks(deployment)
    return names.template_revision(resource_name, revision) if revision else ""


def lost_data(
    resource: Manifest,
    deployment: Manifest | None,
    *,
    fields_hash: str,
    template: dict[str, Any],
    facts: dict[str, Any],
    has_other_records: bool,
) -> dict[str, Any] | None:
    """Return what the record of the live template held, under the same fields; None when today's rendering is due.

    ``template`` and ``facts`` are today's. A Deployment of an earlier release does not tell its fields: without
    ``has_other_records``, which would say that they changed, they count as the same.
    """
    if deployment is None:
        return None
    marked_hash, marked_revision = marks(deployment)
    if marked_hash != fields_hash and (marked_hash or has_other_records):
        return None
    if marked_revision == digest([fields_hash, template], REVISION_DIGITS):
        return None
    live = applied_template(deployment)
    if first_difference(template, live) is None and first_difference(live, template) is None:
        return None
    is_known = bool(marked_revision) and not has_fields_of_others(deployment)
    revision = marked_revision if is_known else digest([fields_hash, live], REVISION_DIGITS)
    return {"revision": revision, "template": live, "facts": _facts_of(resource, facts)}


def _facts_of(resource: Manifest, today: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of the template in effect: what status tells, with today's where they cannot differ."""
    told = told_facts(resource)
    if not told or told["model"] == today["model"]:
        return {**today, **told}
    # predictions and times follow from the model: those of today would be another template's
    return told


def told_facts(resource: Manifest) -> dict[str, Any]:
    """Return the facts of the template in effect as far as status tells them; nothing when it does not tell all."""
    status = resource.get("status") or {}
    told = {name: status.get(name) for name in ("model", "capacity", "transfer")}
    told["keyPrefix"] = (status.get("couchbase") or {}).get("keyPrefix")
    return told if all(told.values()) else {}
