"""What pods mount is part of the key prefix where nothing else fixes it, and told where it can change unseen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.render import render
from tests.core.planning import QWEN3_8B, config_of, container, flag_value, plan_of, spec_of

if TYPE_CHECKING:
    from couchbase_lm_operator.core.plan import Plan

COMMIT = "a" * 40
DIGEST = f"registry.example.com/models@sha256:{'0' * 64}"
PATH = {"id": "/models/m", "config": {"configMapRef": {"name": "c"}}}
IN_CLAIM = {**PATH, "id": "/weights/m"}


def _claim(name: str) -> dict[str, Any]:
    return {"weights": {"pvc": {"claimName": name}}}


def _mounted(source: dict[str, Any], path: str = "/models", **mount: Any) -> dict[str, Any]:
    mounts = [{"name": "extra", "mountPath": path, **mount}]
    return {"volumes": [{"name": "extra", **source}], "volumeMounts": mounts}


def _of_claim(name: str) -> dict[str, Any]:
    return {"persistentVolumeClaim": {"claimName": name}}


def _image(reference: str) -> dict[str, Any]:
    return {"image": {"reference": reference}}


def _hub(**changes: Any) -> Plan:
    return plan_of(spec_of(**changes), model_config=config_of(QWEN3_8B, COMMIT))


def _local(model: dict[str, Any], namespace_uid: str = "namespace-uid", **changes: Any) -> Plan:
    spec = spec_of(model=model, **changes)
    return plan_of(spec, model_config=config_of(QWEN3_8B, ""), namespace_uid=namespace_uid)


def _told(plan: Plan, reason: Reason = Reason.WEIGHTS_NOT_PINNED) -> list[str]:
    return [each.message for each in plan.warnings if each.reason == reason]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"model": {**IN_CLAIM, **_claim("v1")}}, {"model": {**IN_CLAIM, **_claim("v2")}}),
        ({"podTemplate": _mounted(_of_claim("v1"))}, {"podTemplate": _mounted(_of_claim("v2"))}),
        ({"podTemplate": _mounted(_image("models:v1"))}, {"podTemplate": _mounted(_image("models:v2"))}),
        (
            {"podTemplate": _mounted(_of_claim("all"), subPath="v1")},
            {"podTemplate": _mounted(_of_claim("all"), subPath="v2")},
        ),
        (
            {"podTemplate": _mounted({"hostPath": {"path": "/srv/v1"}})},
            {"podTemplate": _mounted({"hostPath": {"path": "/srv/v2"}})},
        ),
    ],
)
def test_other_weights_behind_a_path_have_another_key_prefix(first: dict[str, Any], second: dict[str, Any]) -> None:
    plans = [_local(**{"model": PATH, **changes}) for changes in (first, second)]
    assert plans[0].key_prefix != plans[1].key_prefix
    # what a prefix is worth is decided in the pod
    adapters = [
        flag_value(container({each["kind"]: each for each in render(plan)}, "lmcache"), "--l2-adapter")
        for plan in plans
    ]
    assert all(plan.key_prefix in adapter for plan, adapter in zip(plans, adapters, strict=True))


def test_a_claim_of_the_same_name_in_another_namespace_is_another_one() -> None:
    model = {**IN_CLAIM, **_claim("models")}
    assert _local(model).key_prefix != _local(model, "another-uid").key_prefix
    # an image is the same everywhere
    mounted = _mounted(_image(DIGEST))
    here, there = (_local(PATH, uid, podTemplate=mounted) for uid in ("namespace-uid", "another-uid"))
    assert here.key_prefix == there.key_prefix
    assert _local(PATH).key_prefix == _local(PATH, "another-uid").key_prefix


@pytest.mark.parametrize(
    "changes",
    [
        # a mount can stand where the engine's code was, also an empty one
        {"podTemplate": _mounted({"configMap": {"name": "patch"}}, "/usr/lib/python3/vllm/patch.py", subPath="p.py")},
        {"podTemplate": _mounted({"emptyDir": {}}, "/usr/lib/python3/vllm/plugins")},
        {"engine": {"python": "/opt/other/bin/python3"}},
        {"cache": {"env": [{"name": "LMCACHE_X", "value": "1"}]}},
    ],
)
def test_what_can_bring_other_code_changes_the_key_prefix(changes: dict[str, Any]) -> None:
    assert _hub(**changes).key_prefix != _hub().key_prefix


@pytest.mark.parametrize(
    "changes",
    [
        # a commit names the weights wherever they are kept: blue and green may have a claim each
        {"model": _claim("v1")},
        {"model": {"weights": {"emptyDir": {"sizeLimit": "20Gi"}}}},
        # what nothing mounts nobody reads
        {"podTemplate": {"volumes": [{"name": "spare", "emptyDir": {}}]}},
        {"engine": {"python": "python3"}},
    ],
)
def test_what_cannot_change_bytes_keeps_the_key_prefix(changes: dict[str, Any]) -> None:
    assert _hub(**changes).key_prefix == _hub().key_prefix


def test_a_claim_with_a_branch_in_it_counts() -> None:
    model = {"revision": "main", "config": {"configMapRef": {"name": "c"}}}
    assert _local({**model, **_claim("v1")}).key_prefix != _local({**model, **_claim("v2")}).key_prefix


@pytest.mark.parametrize(
    ("model", "template", "field"),
    [
        ({**IN_CLAIM, **_claim("v1")}, {}, "spec.model.weights.pvc"),
        (PATH, _mounted(_of_claim("v1")), "spec.podTemplate.volumes (extra)"),
        (PATH, _mounted(_of_claim("v1"), "/models/m/"), "spec.podTemplate.volumes (extra)"),
        ({**IN_CLAIM, **_claim("v1")}, _mounted(_of_claim("v1"), "/weights/m"), "spec.podTemplate.volumes (extra)"),
        (PATH, _mounted({"hostPath": {"path": "/srv"}}), "spec.podTemplate.volumes (extra)"),
        (PATH, _mounted(_image("models:v1")), "a digest cannot"),
    ],
)
def test_weights_that_can_change_unseen_are_told(model: dict[str, Any], template: dict[str, Any], field: str) -> None:
    (told,) = _told(_local(model, podTemplate=template))
    assert field in told
    assert "spec.model.id" in told
    # who answers for the prefix is told that instead
    assert _told(_local(model, podTemplate=template, cache={"keyPrefix": "mine:"})) == []


@pytest.mark.parametrize(
    ("model", "template"),
    [
        (PATH, {}),
        (PATH, _mounted(_image(DIGEST))),
        (PATH, _mounted(_of_claim("logs"), "/models/m-logs")),
    ],
)
def test_weights_that_a_reference_fixes_are_not_told(model: dict[str, Any], template: dict[str, Any]) -> None:
    assert _told(_local(model, podTemplate=template)) == []


def test_what_the_warning_advises_gives_another_key_prefix() -> None:
    model = {**IN_CLAIM, **_claim("v1")}
    first, second = (
        _local(model, engine={"env": [{"name": "WEIGHTS_VERSION", "value": value}]}) for value in ("1", "2")
    )
    assert "spec.engine.env" in _told(first)[0]
    assert first.key_prefix != second.key_prefix
    assert first.pod_fields != second.pod_fields


@pytest.mark.parametrize(
    "source",
    [
        {"configMap": {"name": "patch"}},
        _of_claim("site-packages"),
        {"hostPath": {"path": "/srv/vllm"}},
        {"csi": {"driver": "files.example.com"}},
        _image("patches:v1"),
    ],
)
def test_a_mount_that_can_change_unseen_is_told(source: dict[str, Any]) -> None:
    template = _mounted(source, "/usr/lib/python3/vllm/patch.py", subPath="patch.py")
    plan = _hub(podTemplate=template)
    (told,) = _told(plan, Reason.MOUNT_NOT_PINNED)
    assert "spec.podTemplate.volumes (extra)" in told
    assert [each.reason for each in plan.warnings] == [Reason.MOUNT_NOT_PINNED]
    # what it advises gives other keys, and who answers for the prefix is told that instead
    versioned = _hub(podTemplate=template, engine={"env": [{"name": "PATCH_VERSION", "value": "2"}]})
    assert versioned.key_prefix != plan.key_prefix
    own = _hub(podTemplate=template, cache={"keyPrefix": "mine:"})
    assert _told(own, Reason.MOUNT_NOT_PINNED) == []


@pytest.mark.parametrize(
    "template",
    [
        _mounted({"emptyDir": {}}),
        _mounted({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}),
        _mounted(_image(DIGEST)),
        # credentials and certificates
        _mounted({"secret": {"secretName": "registry"}}),
        # what nothing mounts nobody reads
        {"volumes": [{"name": "spare", "configMap": {"name": "spare"}}]},
    ],
)
def test_a_mount_that_shapes_no_bytes_or_is_fixed_is_not_told(template: dict[str, Any]) -> None:
    assert _hub(podTemplate=template).warnings == ()


def test_mounts_of_weights_are_told_as_such_and_others_beside_them() -> None:
    weights = _mounted(_of_claim("v1"))
    assert _told(_local(PATH, podTemplate=weights), Reason.MOUNT_NOT_PINNED) == []
    both = {
        "volumes": [*weights["volumes"], {"name": "patch", "configMap": {"name": "patch"}}],
        "volumeMounts": [*weights["volumeMounts"], *({"name": "patch", "mountPath": path} for path in ("/a", "/b"))],
    }
    plan = _local(PATH, podTemplate=both)
    assert "(extra)" in _told(plan)[0]
    (told,) = _told(plan, Reason.MOUNT_NOT_PINNED)
    assert "spec.podTemplate.volumes (patch):" in told
