"""Live objects in the spelling the API server gives back are not drift; everything else is."""

from __future__ import annotations

import pytest

from couchbase_lm_operator.core.children.drift import amount, first_difference


def _pod(**container: object) -> dict[str, object]:
    return {"spec": {"containers": [{"name": "vllm", **container}]}}


@pytest.mark.parametrize(
    ("rendered", "live"),
    [
        ({"cpu": "0.5"}, {"cpu": "500m"}),
        ({"memory": "2048Mi"}, {"memory": "2Gi"}),
        ({"memory": 2147483648}, {"memory": "2Gi"}),
        ({"memory": "1e3"}, {"memory": "1k"}),
        ({"nvidia.com/gpu": 1}, {"nvidia.com/gpu": "1"}),
    ],
)
def test_quantities_are_compared_by_amount(rendered: dict[str, object], live: dict[str, object]) -> None:
    assert first_difference(_pod(resources={"limits": rendered}), _pod(resources={"limits": live})) is None


@pytest.mark.parametrize("field", ["resources", "securityContext"])
def test_an_empty_object_that_the_server_dropped_is_no_drift(field: str) -> None:
    assert first_difference(_pod(**{field: {}}), _pod()) is None


def test_defaults_and_foreign_fields_are_no_drift() -> None:
    live = _pod(terminationMessagePath="/dev/termination-log", env=[{"name": "OTHERS", "value": "1"}])
    live["status"] = {"replicas": 1}
    assert first_difference(_pod(env=[]), live) is None


def test_list_items_are_matched_by_name() -> None:
    rendered = _pod(env=[{"name": "A", "value": "1"}, {"name": "B", "value": "2"}])
    live = _pod(env=[{"name": "B", "value": "2"}, {"name": "X", "value": "9"}, {"name": "A", "value": "1"}])
    assert first_difference(rendered, live) is None


@pytest.mark.parametrize(
    ("rendered", "live", "path"),
    [
        ({"image": "a:1"}, {"image": "a:2"}, ".spec.containers[vllm].image"),
        ({"args": ["a", "b"]}, {"args": ["a"]}, ".spec.containers[vllm].args"),
        ({"args": ["a", "b"]}, {"args": ["a", "c"]}, ".spec.containers[vllm].args[1]"),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": []}, ".spec.containers[vllm].env[A]"),
        ({"resources": {"limits": {"cpu": "1"}}}, {}, ".spec.containers[vllm].resources"),
        ({"tty": False}, {"tty": 0}, ".spec.containers[vllm].tty"),
        # text that looks like a quantity is only one where quantities live
        ({"image": "1000m"}, {"image": "1"}, ".spec.containers[vllm].image"),
    ],
)
def test_drift_is_named_by_its_path(rendered: dict[str, object], live: dict[str, object], path: str) -> None:
    assert first_difference(_pod(**rendered), _pod(**live)) == path


@pytest.mark.parametrize("text", ["", "abc", "1Zi", "Mi"])
def test_what_is_no_quantity_has_no_amount(text: str) -> None:
    assert amount(text) is None
