"""When a workload serves, is on its way, or is stuck."""

from __future__ import annotations

from typing import Any

import pytest

from couchbase_lm_operator.core.children.pods import pod_state
from couchbase_lm_operator.core.children.readiness import NOT_RENDERED, workload_state


def _deployment(wanted: int = 2, seen: int = 3, conditions: Any = None, **counts: int) -> Any:
    status = {"observedGeneration": seen, "conditions": conditions or [], **counts}
    return {"metadata": {"generation": 3}, "spec": {"replicas": wanted}, "status": status}


def _all(count: int) -> dict[str, int]:
    return dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), count)


def _pod(**status: Any) -> Any:
    return pod_state({"metadata": {"name": "demo-1"}, "status": status})


_EXPIRED = [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]
_UNSCHEDULABLE = {
    "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: Insufficient cpu"}
    ]
}
_CRASHING = {
    "containerStatuses": [
        {
            "name": "vllm",
            "restartCount": 4,
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 2m40s restarting"}},
            "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
        }
    ]
}


def test_nothing_rendered_is_not_available() -> None:
    assert workload_state(None, ()) == NOT_RENDERED


@pytest.mark.parametrize(
    ("deployment", "is_available", "reason"),
    [
        (_deployment(**_all(2)), True, "WorkloadAvailable"),
        (_deployment(seen=2, **_all(2)), False, "WorkloadStarting"),
        (_deployment(**{**_all(2), "availableReplicas": 1}), False, "WorkloadStarting"),
        (_deployment(**{**_all(2), "updatedReplicas": 1}), False, "WorkloadStarting"),
        (_deployment(**{**_all(2), "replicas": 3}), False, "WorkloadStarting"),
        (_deployment(wanted=0, **_all(0)), True, "WorkloadScaledToZero"),
        (_deployment(wanted=0, **_all(1)), False, "WorkloadStarting"),
    ],
)
def test_available_means_this_generation_on_all_replicas(deployment: Any, is_available: bool, reason: str) -> None:
    state = workload_state(deployment, ())
    assert (state.is_available, state.reason, state.is_stuck) == (is_available, reason, False)


@pytest.mark.parametrize(
    ("deployment", "told"),
    [
        (_deployment(**_all(1)), "1 replicas are ready, 2 are wanted."),
        (_deployment(**{**_all(2), "updatedReplicas": 1}), "1 of 2 replicas have the new template."),
        (_deployment(**{**_all(2), "replicas": 3}), "3 replicas exist, 2 are wanted"),
        (_deployment(wanted=0, **_all(1)), "1 replicas exist, 0 are wanted"),
        (_deployment(seen=2, **_all(2)), "not taken up the Deployment"),
    ],
)
def test_a_rollout_says_what_it_waits_for_also_when_all_old_pods_are_ready(deployment: Any, told: str) -> None:
    assert told in workload_state(deployment, ()).message


def test_a_crash_is_told_without_volatile_figures() -> None:
    state = workload_state(_deployment(), [_pod(**_CRASHING)])
    assert state.reason == "WorkloadFailing"
    assert "vllm ended with exit code 1" in state.message
    assert "2m40s" not in state.message


def test_a_deadline_makes_it_stuck_but_not_while_pods_wait_for_room() -> None:
    assert workload_state(_deployment(conditions=_EXPIRED), ()).is_stuck
    assert workload_state(_deployment(conditions=_EXPIRED), [_pod(**_CRASHING)]).is_stuck
    waiting = workload_state(_deployment(conditions=_EXPIRED), [_pod(**_UNSCHEDULABLE)])
    assert (waiting.is_stuck, waiting.reason) == (False, "WorkloadUnschedulable")
    assert "Insufficient cpu" in waiting.message


def test_conditions_of_an_older_generation_do_not_count() -> None:
    assert not workload_state(_deployment(seen=2, conditions=_EXPIRED), ()).is_stuck


def test_pods_that_go_tell_nothing() -> None:
    going = pod_state({"metadata": {"name": "old", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": _CRASHING})
    assert workload_state(_deployment(), [going]).reason == "WorkloadStarting"


def test_the_container_at_fault_is_found_behind_those_that_wait_for_it() -> None:
    state = _pod(
        initContainerStatuses=[
            {"name": "wheelhouse", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}},
            {"name": "lmcache", "state": {"waiting": {"reason": "PodInitializing"}}},
        ],
        containerStatuses=[{"name": "vllm", "state": {"waiting": {"reason": "PodInitializing"}}}],
    )
    assert state.waiting_reason == "ImagePullBackOff"
