"""What we applied is told by managedFields; a lost record is made from it, and only under the same fields."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from couchbase_lm_operator import names
from couchbase_lm_operator.core.children import children, lost_record
from couchbase_lm_operator.core.children.applied_fields import applied_template
from couchbase_lm_operator.core.children.template_pin import Pin, pin

RESOURCE: dict[str, Any] = {
    "metadata": {"name": "demo", "namespace": "ns", "uid": "uid-1"},
    "status": {
        "model": {"chunkSize": 256},
        "capacity": {"bytesPerContext": 1},
        "transfer": {"mode": "EngineDriven"},
        "couchbase": {"keyPrefix": "old"},
    },
}
OURS: dict[str, Any] = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {
        "containers": [{"name": "vllm", "image": "a:1", "args": ["serve", "m"], "resources": {}}],
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "volumes": [{"name": "shm", "emptyDir": {}}],
        "finalizers": ["ours"],
    },
}
FIELDS: dict[str, Any] = {
    "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
    "f:spec": {
        "f:containers": {'k:{"name":"vllm"}': {".": {}, "f:name": {}, "f:image": {}, "f:args": {}, "f:resources": {}}},
        "f:tolerations": {},
        "f:volumes": {'k:{"name":"shm"}': {".": {}, "f:name": {}, "f:emptyDir": {}}},
        "f:finalizers": {'v:"ours"': {}},
    },
}
TODAY = {"model": {"chunkSize": 512}, "keyPrefix": "new", "prediction": {"ranks": 1}, "payoff": {"tokens": 1}}


def _live(**annotations: str) -> dict[str, Any]:
    """Return a Deployment with defaults of the server and fields of others in its template."""
    template = copy.deepcopy(OURS)
    template["metadata"]["annotations"] = {"kubectl.kubernetes.io/restartedAt": "now"}
    container = template["spec"]["containers"][0]
    container |= {"imagePullPolicy": "Always"}
    template["spec"]["containers"].append({"name": "theirs", "image": "b:1"})
    template["spec"]["finalizers"].append("theirs")
    template["spec"]["schedulerName"] = "default-scheduler"
    live = children.adopted(
        {
            "kind": "Deployment",
            "metadata": {"name": "demo", "annotations": annotations},
            "spec": {"template": template},
        },
        RESOURCE,
    )
    entry = {"manager": names.FIELD_MANAGER, "operation": "Apply", "fieldsV1": {"f:spec": {"f:template": FIELDS}}}
    live["metadata"]["managedFields"] = [{"manager": "kubectl", "operation": "Update"}, entry]
    return live


def _pin(live: dict[str, Any], template: dict[str, Any], *, approved: str = "") -> Pin:
    return pin(
        resource=RESOURCE,
        children={children.key(live): live},
        fields_hash="f1",
        template=template,
        facts=TODAY,
        config=None,
        approved=approved,
    )


def test_what_we_applied_is_found_without_defaults_and_fields_of_others() -> None:
    assert applied_template(_live()) == OURS


def _taken(live: dict[str, Any], lost: str, taken: dict[str, Any], **container: Any) -> dict[str, Any]:
    """Return the Deployment after somebody else wrote a field of its container: it is theirs now."""
    theirs = {"f:spec": {"f:containers": {'k:{"name":"vllm"}': taken}}}
    container_fields = copy.deepcopy(FIELDS)
    del container_fields["f:spec"]["f:containers"]['k:{"name":"vllm"}'][lost]
    live["metadata"]["managedFields"] = [
        {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {"f:template": theirs}}},
        {
            "manager": names.FIELD_MANAGER,
            "operation": "Apply",
            "fieldsV1": {"f:spec": {"f:template": container_fields}},
        },
    ]
    live["spec"]["template"]["spec"]["containers"][0] |= container
    return live


def _with_another_image(**annotations: str) -> dict[str, Any]:
    return _taken(_live(**annotations), "f:image", {"f:image": {}}, image="theirs:9")


def test_a_field_that_somebody_else_took_keeps_the_value_that_runs() -> None:
    expected = copy.deepcopy(OURS)
    expected["spec"]["containers"][0]["image"] = "theirs:9"
    assert applied_template(_with_another_image()) == expected
    resources = {"limits": {"cpu": "1"}}
    taken = {"f:resources": {"f:limits": {"f:cpu": {}}}}
    found = applied_template(_taken(_live(), "f:resources", taken, resources=resources))
    assert found["spec"]["containers"][0] == {**OURS["spec"]["containers"][0], "resources": resources}


def test_a_field_that_somebody_else_took_waits_for_approval_after_an_upgrade() -> None:
    today = {"spec": {"containers": [{"name": "vllm", "image": "a:2"}]}}
    marks = {names.ANNOTATION_TEMPLATE_HASH: "f1", names.ANNOTATION_TEMPLATE_REVISION: "0123456789"}
    found = _pin(_with_another_image(**marks), today)
    assert found.template["spec"]["containers"][0]["image"] == "theirs:9"
    # it is not what was known under that revision
    assert found.revision not in {"0123456789", found.pending}
    assert found.pending
    assert _pin(_with_another_image(**marks), today, approved=found.pending).template == today


def test_what_this_release_itself_applied_is_known_whatever_others_did_to_it() -> None:
    revision = _pin(_live(), OURS).revision
    marks = {names.ANNOTATION_TEMPLATE_HASH: "f1", names.ANNOTATION_TEMPLATE_REVISION: revision}
    found = _pin(_with_another_image(**marks), OURS)
    assert (found.template, found.revision, found.pending, found.facts) == (OURS, revision, "", TODAY)


def test_without_managed_fields_all_of_the_template_counts() -> None:
    live = _live()
    live["metadata"]["managedFields"] = []
    assert applied_template(live) == live["spec"]["template"]


@pytest.mark.parametrize("revision", ["0123456789", ""])
def test_the_live_template_is_pinned_with_the_facts_that_status_tells(revision: str) -> None:
    marks = {names.ANNOTATION_TEMPLATE_HASH: "f1", names.ANNOTATION_TEMPLATE_REVISION: revision} if revision else {}
    found = _pin(_live(**marks), {"spec": {"image": "a:2"}})
    assert found.template == OURS
    assert found.pending
    assert found.revision == (revision or found.record["data"]["revision"])
    assert found.facts == {
        "model": {"chunkSize": 256},
        "capacity": {"bytesPerContext": 1},
        "transfer": {"mode": "EngineDriven"},
        "keyPrefix": "old",
    }
    assert found.record["metadata"]["annotations"] == {names.ANNOTATION_TEMPLATE_HASH: "f1"}
    again = _pin(_live(**marks), {"spec": {"image": "a:2"}}, approved=found.pending)
    assert (again.template, again.pending) == ({"spec": {"image": "a:2"}}, "")


def test_other_fields_and_equal_renderings_take_todays() -> None:
    changed = _live(**{names.ANNOTATION_TEMPLATE_HASH: "f0", names.ANNOTATION_TEMPLATE_REVISION: "0000000000"})
    assert _pin(changed, {"spec": {"image": "a:2"}}).template == {"spec": {"image": "a:2"}}
    equal = _pin(_live(), OURS)
    assert (equal.template, equal.facts, equal.pending) == (OURS, TODAY, "")


def test_a_deployment_of_somebody_else_is_no_record() -> None:
    foreign = _live()
    foreign["metadata"]["ownerReferences"] = [{"uid": "uid-2", "controller": True}]
    assert _pin(foreign, {"spec": {"image": "a:2"}}).template == {"spec": {"image": "a:2"}}


@pytest.mark.parametrize("revision", ["x y", "a/b", "../0123456789", "0123456789\n", "ABCDEF0123", "012345678", "é"])
def test_a_revision_that_was_written_by_hand_names_no_record(revision: str) -> None:
    edited = _live(**{names.ANNOTATION_TEMPLATE_HASH: "f1", names.ANNOTATION_TEMPLATE_REVISION: revision})
    assert lost_record.record_name("demo", edited) == ""
    found = _pin(edited, {"spec": {"image": "a:2"}})
    assert found.template == OURS
    assert found.revision not in {revision, ""}
