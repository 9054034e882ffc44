"""Beside a spec that cannot be followed: the template that runs, what is wanted around it, and nothing of others."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from couchbase_lm_operator import names
from couchbase_lm_operator.core.children import children
from couchbase_lm_operator.core.children.held import held_manifests
from couchbase_lm_operator.core.pod_template.workload import frame
from couchbase_lm_operator.core.render import render_frame
from tests.core.planning import spec_of

HASH, REVISION = "f1", "0123456789"
TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "vllm", "image": "a:1"}]}}
FACTS = {"model": {"m": 1}, "capacity": {"c": 1}, "transfer": {"mode": "t"}, "keyPrefix": "k"}
RESOURCE: dict[str, Any] = {
    "metadata": {"name": "demo", "namespace": "ns", "uid": "uid-1"},
    "status": {
        **{name: FACTS[name] for name in ("model", "capacity", "transfer")},
        "couchbase": {"keyPrefix": "k"},
        "workload": {"revision": REVISION},
    },
}
FOREIGN = [{"uid": "uid-2", "controller": True}]


def _deployment(*, has_marks: bool = True) -> dict[str, Any]:
    marks = {names.ANNOTATION_TEMPLATE_HASH: HASH, names.ANNOTATION_TEMPLATE_REVISION: REVISION} if has_marks else {}
    spec = {"replicas": 1, "progressDeadlineSeconds": 77, "strategy": {"type": "Recreate"}, "template": TEMPLATE}
    return children.adopted(
        {"kind": "Deployment", "metadata": {"name": "demo", "annotations": marks}, "spec": copy.deepcopy(spec)},
        RESOURCE,
    )


def _record() -> dict[str, Any]:
    return children.adopted(
        {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {
                "name": names.template_revision("demo", REVISION),
                "annotations": {names.ANNOTATION_TEMPLATE_HASH: HASH},
            },
            "revision": 4,
            "data": {"revision": REVISION, "template": TEMPLATE, "facts": FACTS},
        },
        RESOURCE,
    )


def _held(*live: dict[str, Any], is_rollout_refused: bool = False) -> dict[str, dict[str, Any]]:
    around = render_frame(frame(spec_of(replicas=5), "ns", "demo"))
    found = held_manifests(
        RESOURCE, {children.key(each): each for each in live}, around, is_rollout_refused=is_rollout_refused
    )
    assert [each["kind"] for each in found[-1:]] in ([], ["Deployment"], ["Service"])
    return {each["kind"]: each for each in found}


@pytest.mark.parametrize("has_marks", [True, False], ids=["marked", "of an earlier release"])
def test_the_template_stays_and_what_is_around_it_is_wanted(*, has_marks: bool) -> None:
    held = _held(_record(), _deployment(has_marks=has_marks))
    deployment = held["Deployment"]
    assert deployment["spec"]["template"] == TEMPLATE
    assert deployment["spec"]["replicas"] == 5
    assert deployment["spec"]["progressDeadlineSeconds"] == 77
    assert deployment["spec"]["strategy"]["type"] == "RollingUpdate"
    assert deployment["metadata"]["annotations"] == {
        names.ANNOTATION_TEMPLATE_HASH: HASH,
        names.ANNOTATION_TEMPLATE_REVISION: REVISION,
    }
    assert held["ControllerRevision"]["revision"] == 4
    assert held["Service"]["spec"]["ports"]


def test_a_refused_rollout_stays_as_it_is() -> None:
    held = _held(_record(), _deployment(), is_rollout_refused=True)
    assert held["Deployment"]["spec"]["strategy"] == {"type": "Recreate"}
    assert "strategy" not in _held(_record(), is_rollout_refused=True)["Deployment"]["spec"]


def test_a_deleted_deployment_comes_back_from_the_record_that_was_in_effect() -> None:
    assert _held(_record())["Deployment"]["spec"]["template"] == TEMPLATE
    other = copy.deepcopy(_record())
    other["data"]["revision"] = "never-in-effect"
    assert _held(other) == {}


def test_a_lost_record_is_made_again_when_all_of_it_is_known() -> None:
    held = _held(_deployment())
    assert held["ControllerRevision"]["data"] == _record()["data"]
    assert held["ControllerRevision"]["metadata"]["annotations"] == {names.ANNOTATION_TEMPLATE_HASH: HASH}
    # under which fields it was pinned is not known: the next spec that can be followed decides
    unmarked = _held(_deployment(has_marks=False))
    assert "ControllerRevision" not in unmarked
    assert "annotations" not in unmarked["Deployment"]["metadata"]
    assert unmarked["Deployment"]["spec"]["template"] == TEMPLATE


def test_a_template_that_others_changed_is_held_and_not_recorded_as_ours() -> None:
    live = _deployment()
    ours = {"f:spec": {"f:containers": {'k:{"name":"vllm"}': {".": {}, "f:name": {}}}}}
    theirs = {"f:spec": {"f:containers": {'k:{"name":"vllm"}': {"f:image": {}}}}}
    live["metadata"]["managedFields"] = [
        {"manager": manager, "operation": operation, "fieldsV1": {"f:spec": {"f:template": fields}}}
        for manager, operation, fields in ((names.FIELD_MANAGER, "Apply", ours), ("kubectl", "Update", theirs))
    ]
    held = _held(live)
    assert held["Deployment"]["spec"]["template"] == TEMPLATE
    assert "ControllerRevision" not in held


def test_a_revision_in_status_that_can_be_none_names_no_record() -> None:
    live = _deployment()
    del live["metadata"]["annotations"][names.ANNOTATION_TEMPLATE_REVISION]
    resource = {**RESOURCE, "status": {**RESOURCE["status"], "workload": {"revision": "a/b"}}}
    around = render_frame(frame(spec_of(), "ns", "demo"))
    held = held_manifests(resource, {children.key(live): live}, around, is_rollout_refused=False)
    assert {each["kind"] for each in held} == {"Deployment", "Service"}


def test_nothing_is_made_where_nothing_was_in_effect() -> None:
    assert _held() == {}


def test_objects_of_others_are_left_out() -> None:
    service = {"kind": "Service", "metadata": {"name": "demo", "ownerReferences": FOREIGN}, "spec": {}}
    assert set(_held(_record(), _deployment(), service)) == {"ControllerRevision", "Deployment"}
    deployment = _deployment()
    deployment["metadata"]["ownerReferences"] = FOREIGN
    assert set(_held(_record(), deployment)) == {"ControllerRevision", "Service"}
    assert _held(deployment) == {}
