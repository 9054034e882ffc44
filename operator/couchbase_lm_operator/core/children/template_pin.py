"""Which pod template runs: the one that was pinned for the same fields, not the one rendered today. Pure.

A ControllerRevision keeps each rendered pod template under the hash of the fields that shaped it, with
the facts that belong to it (numbers in status) and the config.json it was worked out from (``kept_config``).
As long as that hash is the same, the kept template is used, so that a new operator or new defaults change
nothing in running pods. What would be rendered today is then a pending revision, which
``spec.rollout.approve`` brings into effect. A record that was lost is made again from the Deployment
(``lost_record``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator import names
from couchbase_lm_operator.core.children import lost_record
from couchbase_lm_operator.core.children.children import digest, is_takeable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from couchbase_lm_operator.core.observed import Manifest

_KIND = "ControllerRevision"


@dataclass(frozen=True)
class Pin:
    """The template in effect.

    ``record`` is the ControllerRevision that keeps it (to be created when it does not exist yet);
    ``pending`` is empty when today's rendering is the one in effect.
    """

    revision: str
    pending: str
    template: dict[str, Any]
    facts: dict[str, Any]
    record: Manifest


def pin(
    *,
    resource: Manifest,
    children: Mapping[tuple[str, str], Manifest],
    fields_hash: str,
    template: dict[str, Any],
    facts: dict[str, Any],
    config: dict[str, str] | None,
    approved: str,
) -> Pin:
    """Return the pod template that is to run.

    ``fields_hash`` is ``core.render.pod_template_hash``, ``template`` and ``facts`` are today's rendering,
    ``config`` is what ``core.children.kept_config`` keeps with them, ``approved`` is ``spec.rollout.approve``.
    """
    today = digest([fields_hash, template], lost_record.REVISION_DIGITS)
    records = _records(resource, children)
    kept = _newest(resource, children, records, fields_hash)
    kept_config = {"config": config} if config else {}
    if approved == today or kept is None:
        deployment = lost_record.deployment_of(resource, children)
        lost = lost_record.lost_data(
            resource,
            deployment if approved != today else None,
            fields_hash=fields_hash,
            template=template,
            facts=facts,
            has_other_records=bool(records),
        )
        data = {**(lost or {"revision": today, "template": template, "facts": facts}), **kept_config}
        return _pinned(today, data, new_record(resource, children, fields_hash, data))
    return _pinned(today, kept["data"], rendered_part(kept, fields_hash))


def _pinned(today: str, data: dict[str, Any], record: Manifest) -> Pin:
    revision = str(data["revision"])
    return Pin(revision, "" if revision == today else today, data["template"], data["facts"], record)


def marks(fields_hash: str, revision: str) -> dict[str, str]:
    """Return the annotations by which a Deployment tells which template it has."""
    return {names.ANNOTATION_TEMPLATE_HASH: fields_hash, names.ANNOTATION_TEMPLATE_REVISION: revision}


def record_of(resource: Manifest, children: Mapping[tuple[str, str], Manifest], revision: str) -> Manifest | None:
    """Return the live record of a revision, if there is one."""
    records = _records(resource, children)
    return next((record for record in records if (record.get("data") or {}).get("revision") == revision), None)


def _records(resource: Manifest, children: Mapping[tuple[str, str], Manifest]) -> list[Manifest]:
    uid = str(resource["metadata"]["uid"])
    return [child for child in children.values() if child["kind"] == _KIND and is_takeable(child, uid)]


def _newest(
    resource: Manifest, children: Mapping[tuple[str, str], Manifest], records: list[Manifest], fields_hash: str
) -> Manifest | None:
    """Return the newest record under a hash: those that say so, and the one that the Deployment says is."""
    deployment = lost_record.deployment_of(resource, children)
    is_in_effect = lost_record.marks(deployment)[0] == fields_hash
    in_effect = lost_record.record_name(resource["metadata"]["name"], deployment) if is_in_effect else ""
    kept = [
        record
        for record in records
        if (record["metadata"].get("annotations") or {}).get(names.ANNOTATION_TEMPLATE_HASH) == fields_hash
        or record["metadata"]["name"] == in_effect
    ]
    return max(kept, key=lambda record: int(record["revision"]), default=None)


def new_record(
    resource: Manifest,
    children: Mapping[tuple[str, str], Manifest],
    fields_hash: str,
    data: dict[str, Any],
) -> Manifest:
    """Return the record of a template: the one of its name, or one that is newer than all others."""
    name = names.template_revision(resource["metadata"]["name"], data["revision"])
    existing = children.get((_KIND, name))
    if existing is not None:
        return rendered_part(existing, fields_hash)
    numbers = [int(child["revision"]) for child in children.values() if child["kind"] == _KIND]
    return {
        "apiVersion": "apps/v1",
        "kind": _KIND,
        "metadata": {"name": name, "annotations": {names.ANNOTATION_TEMPLATE_HASH: fields_hash}},
        "revision": max(numbers, default=0) + 1,
        "data": data,
    }


def rendered_part(live: Manifest, fields_hash: str) -> Manifest:
    """Return a live record as we would render it: its data is immutable, so it is taken as it is."""
    return {
        "apiVersion": live["apiVersion"],
        "kind": live["kind"],
        "metadata": {
            "name": live["metadata"]["name"],
            "annotations": {names.ANNOTATION_TEMPLATE_HASH: fields_hash},
        },
        "revision": live["revision"],
        "data": live["data"],
    }
