"""The workload arm of a pass: from manifests to objects in the cluster, without ever asking Couchbase."""

from __future__ import annotations

import copy
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.children import children, held, kept_config, template_pin
from couchbase_lm_operator.core.verdict import Proceed, Refuse, Verdict
from couchbase_lm_operator.errors import ClusterRefusedError
from couchbase_lm_operator.metrics import WRITES

if TYPE_CHECKING:
    from typing import Any

    from couchbase_lm_operator.core.children.template_pin import Pin
    from couchbase_lm_operator.core.observed import Manifest, Observed
    from couchbase_lm_operator.io.cluster import Cluster

logger = logging.getLogger(__name__)

_REFUSED = {
    "Deployment": (
        Reason.POD_TEMPLATE_INVALID,
        "The API server refuses the rendered pods; correct what spec.podTemplate, engine, cache or accelerator adds",
    ),
    "Service": (Reason.SERVICE_INVALID, "The API server refuses the Service; correct spec.service"),
}


@dataclass(frozen=True)
class Applied:
    """How the arm ended; ``deployment`` and ``service`` are the live ones after it, never those of somebody else."""

    verdict: Verdict
    pin: Pin | None
    deployment: Manifest | None
    service: Manifest | None


async def run(
    cluster: Cluster,
    observed: Observed,
    manifests: tuple[Manifest, ...],
    *,
    fields_hash: str,
    facts: dict[str, Any],
    approved: str,
) -> Applied:
    """Bring the rendered objects into effect and remove what is no longer rendered.

    The Deployment goes last, after the record of its template and its Service: an operator that dies in
    between finds a record to go on from, and never a pod whose template nobody remembers.

    Raises:
        ClusterError: the API server did not answer, or refuses what the operator may not do.
    """
    live = observed.children
    verdict = children.check_names_are_free(manifests, live, observed.uid)
    if not isinstance(verdict, Proceed):
        return untouched(verdict, observed)
    deployment = next(each for each in manifests if each["kind"] == "Deployment")
    pin = template_pin.pin(
        resource=observed.resource,
        children=live,
        fields_hash=fields_hash,
        template=deployment["spec"]["template"],
        facts=facts,
        config=kept_config.to_record(observed.model_config),
        approved=approved,
    )
    pinned = copy.deepcopy(deployment)
    pinned["spec"]["template"] = pin.template
    pinned["metadata"]["annotations"] = template_pin.marks(fields_hash, pin.revision)
    others = [each for each in manifests if each is not deployment]
    wanted = [children.adopted(each, observed.resource) for each in (pin.record, *others, pinned)]
    due = [(each, why) for each in wanted if (why := children.difference(each, live.get(children.key(each))))]
    for manifest, _ in due:
        refusal = await _dry_run(cluster, manifest)
        if refusal is not None:
            return untouched(refusal, observed)
    stored = [await _apply(cluster, manifest, why) for manifest, why in due]
    if not observed.is_partial:
        for leftover in children.surplus(wanted, live, observed.uid):
            await cluster.delete(leftover)
            WRITES.labels(leftover["kind"], "delete").inc()
    return _applied(Proceed(), pin, observed, stored)


async def hold(
    cluster: Cluster, observed: Observed, frame: tuple[Manifest, ...], refusal: Verdict, *, is_rollout_refused: bool
) -> Applied:
    """Leave the pods as they are and bring into effect what does not shape them, as ``core.children.held`` tells.

    ``refusal`` says why the spec is not followed, and is what the arm ends with. What the API server refuses of the
    rest is left as it is. Nothing is removed.

    Raises:
        ClusterError: the API server did not answer, or refuses what the operator may not do.
    """
    manifests = held.held_manifests(observed.resource, observed.children, frame, is_rollout_refused=is_rollout_refused)
    stored = []
    for manifest in manifests:
        wanted = children.adopted(manifest, observed.resource)
        why = children.difference(wanted, observed.children.get(children.key(wanted)))
        if why is not None and await _dry_run(cluster, wanted) is None:
            stored.append(await _apply(cluster, wanted, why))
    return _applied(refusal, None, observed, stored)


def untouched(verdict: Verdict, observed: Observed) -> Applied:
    """Return the end of an arm that changed nothing."""
    return _applied(verdict, None, observed, [])


def _applied(verdict: Verdict, pin: Pin | None, observed: Observed, stored: list[Manifest]) -> Applied:
    after = {**observed.children, **{children.key(each): each for each in stored}}
    after = {child_key: each for child_key, each in after.items() if children.is_takeable(each, observed.uid)}
    name = observed.name
    return Applied(verdict, pin, after.get(("Deployment", name)), after.get(("Service", name)))


async def _apply(cluster: Cluster, manifest: Manifest, why: str) -> Manifest:
    stored = await cluster.apply(manifest)
    kind, name = children.key(manifest)
    WRITES.labels(kind, "apply").inc()
    namespace = manifest["metadata"]["namespace"]
    logger.info("applied", extra={"kind": kind, "object": name, "namespace": namespace, "why": why})
    return stored


async def _dry_run(cluster: Cluster, manifest: Manifest) -> Refuse | None:
    """Ask the API server whether it would take what users' fields shape, before anything is changed."""
    refused = _REFUSED.get(manifest["kind"])
    if refused is None:
        return None
    reason, told = refused
    try:
        await cluster.apply(manifest, dry_run=True)
    except ClusterRefusedError as error:
        if error.status == 403 and "is forbidden: User" in error.message:
            raise  # the operator's own rights: not the resource's fault
        return Refuse(reason, f"{told}: {error.message}")
    return None
