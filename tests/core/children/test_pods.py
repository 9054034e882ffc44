"""Which pods may be asked for their metrics, and where."""

from __future__ import annotations

from typing import Any

import pytest

from couchbase_lm_operator.core.children.pods import pod_state
from couchbase_lm_operator.core.children.readiness import has_one_template


def _pod(*ports: dict[str, Any], container: str = "lmcache", **spec: Any) -> Any:
    init = {"name": container, "image": "x", "ports": list(ports)}
    return {"metadata": {"name": "demo-1"}, "spec": {"initContainers": [init], **spec}, "status": {"podIP": "10.0.0.7"}}


_METRICS = {"name": "metrics", "containerPort": 18081}


def test_the_sidecars_port_of_that_name_at_the_pods_address() -> None:
    state = pod_state(_pod({"name": "other", "containerPort": 1}, _METRICS))
    assert (state.address, state.metrics_port) == ("10.0.0.7", 18081)


@pytest.mark.parametrize(
    "pod",
    [
        _pod(),
        _pod({"containerPort": 18081}),
        _pod(_METRICS, container="of-somebody-else"),
        _pod(_METRICS, hostNetwork=True),  # the port would be one of the node
        {"metadata": {"name": "demo-1"}},
    ],
)
def test_others_have_none(pod: Any) -> None:
    assert pod_state(pod).metrics_port == 0


@pytest.mark.parametrize(
    ("generation", "replicas", "updated", "is_one"),
    [(3, 2, 2, True), (3, 2, 1, False), (3, 0, 0, False), (2, 2, 2, False)],
)
def test_all_pods_are_of_one_template(generation: int, replicas: int, updated: int, is_one: bool) -> None:
    status = {"observedGeneration": generation, "replicas": replicas, "updatedReplicas": updated}
    assert has_one_template({"metadata": {"generation": 3}, "spec": {}, "status": status}) is is_one
    assert has_one_template({"metadata": {}, "spec": {}}) is False
