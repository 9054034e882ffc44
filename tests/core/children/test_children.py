"""What is ours, what is somebody else's, what is left over."""

from __future__ import annotations

from typing import Any

from couchbase_lm_operator import names
from couchbase_lm_operator.core.children import children
from couchbase_lm_operator.core.verdict import Proceed, Refuse

RESOURCE: dict[str, Any] = {"metadata": {"name": "demo", "namespace": "ns", "uid": "uid-1"}}
SERVICE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "demo"},
    "spec": {"ports": [{"port": 80}]},
}


def _live(**metadata: Any) -> dict[tuple[str, str], dict[str, Any]]:
    live = children.adopted(SERVICE, RESOURCE)
    live["metadata"] |= metadata
    return {("Service", "demo"): live}


def test_an_adopted_child_has_owner_labels_and_hash_and_the_original_is_untouched() -> None:
    child = children.adopted(SERVICE, RESOURCE)
    assert children.is_ours(child, "uid-1")
    assert not children.is_ours(child, "uid-2")
    assert child["metadata"]["namespace"] == "ns"
    assert SERVICE["metadata"] == {"name": "demo"}


def test_a_child_as_rendered_needs_no_write() -> None:
    child = children.adopted(SERVICE, RESOURCE)
    assert children.difference(child, child) is None
    assert children.difference(child, None) == "it does not exist"


def test_a_field_that_is_no_longer_rendered_is_a_change() -> None:
    more = {**SERVICE, "spec": {**SERVICE["spec"], "type": "NodePort"}}
    live = children.adopted(more, RESOURCE)
    assert children.difference(children.adopted(SERVICE, RESOURCE), live) == "what is rendered changed"


def test_drift_is_named() -> None:
    child = children.adopted(SERVICE, RESOURCE)
    live = {**child, "spec": {"ports": [{"port": 81}]}}
    assert children.difference(child, live) == ".spec.ports[80] was changed"


def test_a_namesake_of_somebody_else_is_refused() -> None:
    foreign = {("Service", "demo"): {**SERVICE, "metadata": {"name": "demo"}}}
    verdict = children.check_names_are_free([SERVICE], foreign, "uid-1")
    assert isinstance(verdict, Refuse)
    assert "Service demo" in verdict.message
    owned = _live(ownerReferences=[{"uid": "other", "controller": True}])
    assert isinstance(children.check_names_are_free([SERVICE], owned, "uid-1"), Refuse)


def test_what_an_orphaning_delete_left_is_taken_over() -> None:
    assert children.check_names_are_free([SERVICE], _live(ownerReferences=[]), "uid-1") == Proceed()
    assert children.check_names_are_free([SERVICE], _live(labels={}), "uid-1") == Proceed()


def test_only_our_own_leftovers_are_surplus() -> None:
    live = _live()
    assert children.surplus([SERVICE], live, "uid-1") == []
    assert children.surplus([], live, "uid-1") == [live["Service", "demo"]]
    assert children.surplus([], live, "uid-2") == []
    assert children.surplus([], _live(labels={names.LABEL_MANAGED_BY: "helm"}), "uid-1") == []
    assert children.surplus([], _live(deletionTimestamp="2026-01-01T00:00:00Z"), "uid-1") == []
