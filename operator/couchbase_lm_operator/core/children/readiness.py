"""Does the workload serve, is it on its way, or is it stuck? Pure.

The rules are those of kstatus for Deployments (the observed generation, then updated, total and available
replicas), with the pods' own troubles put into words. Messages hold no times, counters or generated pod
names, so that a steady state is never rewritten. A pod that waits for room on a node is never "stuck".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator.api.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from couchbase_lm_operator.core.observed import Manifest, PodState

_FAILING = frozenset(
    {
        "CrashLoopBackOff",
        "ImagePullBackOff",
        "ErrImagePull",
        "ErrImageNeverPull",
        "InvalidImageName",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)
_GENERATED_POD = re.compile(r'(pods?) "[^"]*"')


@dataclass(frozen=True)
class WorkloadState:
    """How the workload stands; ``is_stuck`` means that waiting does not help."""

    is_available: bool
    is_stuck: bool
    reason: Reason
    message: str
    replicas: int = 0
    ready_replicas: int = 0


_NOT_TAKEN_UP = "Kubernetes has not taken up the Deployment as it is now."
NOT_RENDERED = WorkloadState(
    is_available=False,
    is_stuck=False,
    reason=Reason.WORKLOAD_NOT_RENDERED,
    message="There is no Deployment yet.",
)


def workload_state(deployment: Manifest | None, pods: Sequence[PodState]) -> WorkloadState:
    """Return the state of a Deployment and of those pods of it that were looked at."""
    if deployment is None:
        return NOT_RENDERED
    status = deployment.get("status") or {}
    wanted = int(deployment["spec"].get("replicas", 1))
    ready = int(status.get("readyReplicas", 0))
    is_seen = int(status.get("observedGeneration", 0)) >= int(deployment["metadata"].get("generation", 1))
    counts = [int(status.get(field, 0)) for field in ("replicas", "updatedReplicas", "availableReplicas")]
    is_available, is_stuck = is_seen and counts == [wanted] * 3, False
    if is_available and wanted == 0:
        reason, message = Reason.WORKLOAD_SCALED_TO_ZERO, "spec.replicas is 0."
    elif is_available:
        reason, message = Reason.WORKLOAD_AVAILABLE, f"All replicas are ready: {wanted}."
    else:
        conditions = {each["type"]: each for each in status.get("conditions") or []} if is_seen else {}
        is_stuck, reason, message = _why_not(
            conditions, _pod_trouble(pods), _progress(wanted, ready, counts) if is_seen else _NOT_TAKEN_UP
        )
    return WorkloadState(is_available, is_stuck, reason, message, counts[0], ready)


def has_one_template(deployment: Manifest) -> bool:
    """Say whether every pod that exists is of the Deployment's template as it is now; ending pods do not count."""
    status = deployment.get("status") or {}
    is_seen = int(status.get("observedGeneration", 0)) >= int(deployment["metadata"].get("generation", 1))
    return is_seen and int(status.get("replicas", 0)) == int(status.get("updatedReplicas", 0)) > 0


def _progress(wanted: int, ready: int, counts: list[int]) -> str:
    """Return how far a rollout is, which is more than how many pods are ready: those may be of the old template."""
    existing, updated, _ = counts
    if ready < wanted or existing < wanted:
        return f"{ready} replicas are ready, {wanted} are wanted."
    if updated < wanted:
        return f"{updated} of {wanted} replicas have the new template."
    return f"{existing} replicas exist, {wanted} are wanted: pods that are no longer wanted are ending."


def _why_not(conditions: dict[str, Any], trouble: tuple[Reason, str] | None, progress: str) -> tuple[bool, Reason, str]:
    """Return whether the rollout is stuck, and why it is not done."""
    if _is(conditions, "ReplicaFailure", "True"):
        told = _GENERATED_POD.sub(r"\1", str(conditions["ReplicaFailure"].get("message", "")))
        return True, Reason.WORKLOAD_BLOCKED, f"The API server does not let pods be created: {told}"
    is_waiting_for_room = trouble is not None and trouble[0] is Reason.WORKLOAD_UNSCHEDULABLE
    if _is(conditions, "Progressing", "False") and not is_waiting_for_room:
        detail = trouble[1] if trouble else progress
        told = f"{detail} This lasted longer than twice spec.engine.startupTimeout."
        return True, Reason.WORKLOAD_DEADLINE_EXCEEDED, told
    reason, message = trouble or (Reason.WORKLOAD_STARTING, progress)
    return False, reason, message


def _is(conditions: dict[str, Any], kind: str, status: str) -> bool:
    return bool(conditions.get(kind, {}).get("status") == status)


def _pod_trouble(pods: Sequence[PodState]) -> tuple[Reason, str] | None:
    alive = [pod for pod in pods if not pod.is_deleting]
    for pod in alive:
        if pod.waiting_reason in _FAILING:
            parts = [f"A container does not start: {pod.waiting_reason}.", pod.last_exit]
            return Reason.WORKLOAD_FAILING, " ".join(part for part in parts if part)
    for pod in alive:
        if pod.unschedulable_message:
            return Reason.WORKLOAD_UNSCHEDULABLE, f"No node takes a pod: {pod.unschedulable_message}"
    return None
