"""Which pod template runs: the one that was pinned for the same fields, not the one rendered today. Pure.

A ControllerRevision keeps each rendered pod template under the hash of the fields that shaped it, with
the facts that belong to it (numbers in status) and the config.json it was worked out from (``kept_config``).
As long as that hash is the same, the kept template is used, so that a new operator or new defaults change
nothing in running pods. What would be rendered today is then a pending revision, which
``spec.rollout.approve`` brings into effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator import names
from couchbase_lm_operator.core.children.children import digest, is_ours

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from couchbase_lm_operator.core.observed import Manifest

_KIND = "ControllerRevision"
_HASH_LENGTH = 10


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
    today = digest([fields_hash, template], _HASH_LENGTH)
    kept = _newest(children.values(), str(resource["metadata"]["uid"]), fields_hash)
    if kept is None or approved == today:
        data = {"revision": today, "template": template, "facts": facts, **({"config": config} if config else {})}
        return Pin(today, "", template, facts, _record(resource, children, fields_hash, data))
    data = kept["data"]
    revision = str(data["revision"])
    pending = "" if revision == today else today
    return Pin(revision, pending, data["template"], data["facts"], _rendered_part(kept))


def _newest(children: Iterable[Manifest], uid: str, fields_hash: str) -> Manifest | None:
    kept = [
        child
        for child in children
        if child["kind"] == _KIND
        and is_ours(child, uid)
        and (child["metadata"].get("annotations") or {}).get(names.ANNOTATION_TEMPLATE_HASH) == fields_hash
    ]
    return max(kept, key=lambda child: int(child["revision"]), default=None)


def _record(
    resource: Manifest,
    children: Mapping[tuple[str, str], Manifest],
    fields_hash: str,
    data: dict[str, Any],
) -> Manifest:
    name = names.template_revision(resource["metadata"]["name"], data["revision"])
    existing = children.get((_KIND, name))
    if existing is not None:
        return _rendered_part(existing)
    numbers = [int(child["revision"]) for child in children.values() if child["kind"] == _KIND]
    return {
        "apiVersion": "apps/v1",
        "kind": _KIND,
        "metadata": {"name": name, "annotations": {names.ANNOTATION_TEMPLATE_HASH: fields_hash}},
        "revision": max(numbers, default=0) + 1,
        "data": data,
    }


def _rendered_part(live: Manifest) -> Manifest:
    """Return a live record as we would render it: its data is immutable, so it is taken as it is."""
    annotation = (live["metadata"].get("annotations") or {}).get(names.ANNOTATION_TEMPLATE_HASH, "")
    return {
        "apiVersion": live["apiVersion"],
        "kind": live["kind"],
        "metadata": {
            "name": live["metadata"]["name"],
            "annotations": {names.ANNOTATION_TEMPLATE_HASH: annotation},
        },
        "revision": live["revision"],
        "data": live["data"],
    }
