"""The objects of a resource whose spec cannot be followed: its pods as they are, around them what is wanted. Pure.

A refused edit, or a model hub that refuses, says nothing against another number of replicas, another Service, or
what somebody deleted: all that does not shape the pods takes effect beside the pod template that runs.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator import names
from couchbase_lm_operator.core.children import lost_record, template_pin
from couchbase_lm_operator.core.children.applied_fields import applied_template, has_fields_of_others
from couchbase_lm_operator.core.children.children import is_takeable, key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from couchbase_lm_operator.core.observed import Manifest


@dataclass(frozen=True)
class _InEffect:
    """The pod template that runs, and its record; None when what the record held is not known."""

    fields_hash: str
    revision: str
    template: dict[str, Any]
    record: Manifest | None


def held_manifests(
    resource: Manifest,
    children: Mapping[tuple[str, str], Manifest],
    frame: tuple[Manifest, ...],
    *,
    is_rollout_refused: bool,
) -> tuple[Manifest, ...]:
    """Return what is to be there while the pods stay as they are; nothing when none were in effect.

    ``frame`` is ``core.render.render_frame`` of the spec. The start time-out shapes pods too, so that twice of it
    stays as it is; with ``is_rollout_refused`` the strategy does as well. What belongs to others is left out.
    """
    effect = _in_effect(resource, children)
    if effect is None:
        return ()
    held = [copy.deepcopy(each) for each in frame]
    deployment = next(each for each in held if each["kind"] == "Deployment")
    deployment["spec"]["template"] = effect.template
    kept = ("progressDeadlineSeconds", "strategy") if is_rollout_refused else ("progressDeadlineSeconds",)
    live = lost_record.deployment_of(resource, children)
    if live is not None:
        deployment["spec"] |= {field: live["spec"][field] for field in kept if field in live["spec"]}
    elif is_rollout_refused:
        del deployment["spec"]["strategy"]
    if effect.fields_hash and effect.revision:
        deployment["metadata"]["annotations"] = template_pin.marks(effect.fields_hash, effect.revision)
    # the Deployment goes last, as ever: never a pod whose template nobody remembers
    ordered = sorted(held, key=lambda each: bool(each["kind"] == "Deployment"))
    wanted = [effect.record, *ordered] if effect.record is not None else ordered
    uid = str(resource["metadata"]["uid"])
    return tuple(each for each in wanted if key(each) not in children or is_takeable(children[key(each)], uid))


def facts_in_effect(resource: Manifest, children: Mapping[tuple[str, str], Manifest]) -> dict[str, Any]:
    """Return the facts that are kept with the pod template that runs; none when they are not known."""
    effect = _in_effect(resource, children)
    return dict(effect.record["data"]["facts"]) if effect is not None and effect.record is not None else {}


def _in_effect(resource: Manifest, children: Mapping[tuple[str, str], Manifest]) -> _InEffect | None:
    """Return the template that the Deployment says it has, or, without one, that status says was in effect."""
    deployment = lost_record.deployment_of(resource, children)
    told = lost_record.told_revision(resource)
    fields_hash, revision = lost_record.marks(deployment)
    revision = revision or told
    kept = template_pin.record_of(resource, children, revision)
    if kept is not None:
        noted = str((kept["metadata"].get("annotations") or {}).get(names.ANNOTATION_TEMPLATE_HASH, ""))
        fields_hash = fields_hash or noted
        return _InEffect(fields_hash, revision, kept["data"]["template"], template_pin.rendered_part(kept, fields_hash))
    if deployment is None:
        return None
    template = applied_template(deployment)
    facts = lost_record.told_facts(resource)
    is_known = bool(fields_hash and revision and revision == told and facts) and not has_fields_of_others(deployment)
    data = {"revision": revision, "template": template, "facts": facts}
    record = template_pin.new_record(resource, children, fields_hash, data) if is_known else None
    return _InEffect(fields_hash, revision if fields_hash else "", template, record)
