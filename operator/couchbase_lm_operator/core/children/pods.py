"""From a Pod to the few facts that status and readiness tell. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from couchbase_lm_operator import names
from couchbase_lm_operator.core.observed import PodState

if TYPE_CHECKING:
    from couchbase_lm_operator.core.observed import Manifest


def pod_state(pod: Manifest) -> PodState:
    """Return the facts of one pod; the first container that waits or ended tells for all."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    containers = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    conditions = {each["type"]: each for each in status.get("conditions") or []}
    waiting = _first_waiting(containers)
    scheduled = conditions.get("PodScheduled", {})
    is_unschedulable = scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
    return PodState(
        name=str(metadata["name"]),
        phase=str(status.get("phase", "Pending")),
        is_ready=conditions.get("Ready", {}).get("status") == "True",
        is_deleting=bool(metadata.get("deletionTimestamp")),
        template_hash=str((metadata.get("annotations") or {}).get(names.ANNOTATION_TEMPLATE_HASH, "")),
        waiting_reason=str(waiting.get("reason", "")),
        waiting_message=str(waiting.get("message", "")),
        last_exit=_last_exit(containers),
        restart_count=sum(int(each.get("restartCount", 0)) for each in containers),
        unschedulable_message=str(scheduled.get("message", "")) if is_unschedulable else "",
        address=str(status.get("podIP", "")),
        metrics_port=_metrics_port(pod.get("spec") or {}),
    )


def _metrics_port(spec: Manifest) -> int:
    """Return the adapter's metrics port; 0 for templates without one, and for pods with the address of their node."""
    if spec.get("hostNetwork"):
        return 0
    ports = [
        int(port["containerPort"])
        for container in spec.get("initContainers") or []
        if container["name"] == names.CONTAINER_LMCACHE
        for port in container.get("ports") or []
        if port.get("name") == names.PORT_METRICS
    ]
    return ports[0] if ports else 0


def _first_waiting(containers: list[dict[str, Any]]) -> dict[str, Any]:
    # PodInitializing is what every later container says while an earlier one is at fault
    for container in containers:
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting and waiting.get("reason") not in {"PodInitializing", "ContainerCreating"}:
            return dict(waiting)
    return {}


def _last_exit(containers: list[dict[str, Any]]) -> str:
    for container in containers:
        state = container.get("state") or {}
        ended = state.get("terminated") or (container.get("lastState") or {}).get("terminated")
        if ended and int(ended.get("exitCode", 0)) != 0:
            reason = ended.get("reason", "Error")
            return f"Container {container['name']} ended with exit code {ended['exitCode']} ({reason}); see its log."
    return ""
