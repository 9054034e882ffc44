"""The order of checks and the words of their verdicts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.checks import check
from couchbase_lm_operator.core.observed import MalformedModelConfig, Missing, SecretValue, Unread
from couchbase_lm_operator.core.verdict import Proceed, Refuse, Wait
from tests.core.planning import QWEN3_8B, RELEASE, config_of, observed_with, spec_of


def verdict(spec_changes: dict[str, Any], config: Any = None, **observed: Any) -> Any:
    found = config_of(QWEN3_8B) if config is None else config
    return check(spec_of(**spec_changes), observed_with(found, **observed), RELEASE)


def test_a_sound_resource_proceeds() -> None:
    assert verdict({}) == Proceed()


@pytest.mark.parametrize(
    ("found", "kind", "reason"),
    [
        (Missing("ConfigMap m of spec.model.config.configMapRef"), Wait, Reason.MODEL_CONFIG_MISSING),
        (Unread("config.json of Qwen/Qwen3-8B", "the hub answered 503"), Wait, Reason.MODEL_CONFIG_UNREADABLE),
        (MalformedModelConfig("key a of ConfigMap m", "it is not JSON"), Refuse, Reason.MODEL_CONFIG_INVALID),
    ],
)
def test_without_a_usable_config_nothing_is_planned(found: Any, kind: type[Wait | Refuse], reason: Reason) -> None:
    said = verdict({}, found)
    assert isinstance(said, kind)
    assert said.reason == reason
    assert getattr(found, "what", "ConfigMap m") in said.message


@pytest.mark.parametrize(
    ("changes", "reason", "named"),
    [
        ({"engine": {"extraArgs": ["--block-size", "8"]}}, Reason.FLAG_NOT_ALLOWED, "spec.engine.extraArgs[0]"),
        ({"engine": {"extraArgs": ["--enable-lora"]}}, Reason.LORA_NOT_SUPPORTED, "spec.engine.extraArgs[0]"),
        ({"cache": {"extraArgs": ["--chunk-size=8"]}}, Reason.FLAG_NOT_ALLOWED, "spec.cache.extraArgs[0]"),
        ({"engine": {"env": [{"name": "HOME", "value": "/"}]}}, Reason.ENV_NOT_ALLOWED, "spec.engine.env"),
        ({"cache": {"env": [{"name": "PYTHONPATH", "value": "/"}]}}, Reason.ENV_NOT_ALLOWED, "spec.cache.env"),
        ({"cache": {"adapterParams": {"password": "x"}}}, Reason.ADAPTER_PARAM_NOT_ALLOWED, "adapterParams.password"),
        ({"cache": {"adapterParams": {"max_worker": 8}}}, Reason.ADAPTER_PARAM_UNKNOWN, "adapterParams.max_worker"),
        ({"cache": {"chunkSize": 100}}, Reason.CHUNK_SIZE_INVALID, "spec.cache.chunkSize 100"),
        ({"cache": {"shardSize": "17Mi"}}, Reason.INVALID_SPEC, "spec.cache.shardSize 17Mi"),
        ({"cache": {"shardSize": "1"}}, Reason.INVALID_SPEC, "spec.cache.shardSize 1"),
        ({"cache": {"l1Size": "1Mi"}}, Reason.INVALID_SPEC, "spec.cache.l1Size 1Mi"),
        ({"engine": {"blockSize": 24}}, Reason.INVALID_SPEC, "spec.engine.blockSize 24"),
        ({"engine": {"blockSize": 16}, "accelerator": {"vendor": "CPU"}}, Reason.INVALID_SPEC, "spec.engine.blockSize"),
        ({"engine": {"tensorParallelSize": 3}}, Reason.INVALID_SPEC, "spec.engine.tensorParallelSize 3"),
        (
            {"engine": {"maxModelLen": 40961}},
            Reason.INVALID_SPEC,
            "spec.engine.maxModelLen 40961 is more than the 40960",
        ),
        (
            {"engine": {"extraArgs": ["--speculative-config", '{"method": "mtp"}']}},
            Reason.FLAG_NOT_ALLOWED,
            "spec.engine.extraArgs[0] is --speculative-config: remove it",
        ),
        (
            {"engine": {"extraArgs": ["--max-num-batched-tokens=all"]}},
            Reason.FLAG_NOT_ALLOWED,
            "spec.engine.extraArgs[0] is --max-num-batched-tokens",
        ),
        ({"engine": {"startupTimeout": "0"}}, Reason.INVALID_SPEC, "spec.engine.startupTimeout"),
        ({"terminationGracePeriod": "5s"}, Reason.INVALID_SPEC, "spec.terminationGracePeriod 5s"),
        (
            {"engine": {"resources": {"limits": {"memory": "lots"}}}},
            Reason.INVALID_SPEC,
            "spec.engine.resources.limits.memory",
        ),
        ({"rollout": {"maxSurge": 0, "maxUnavailable": "0%"}}, Reason.INVALID_SPEC, "spec.rollout"),
        ({"rollout": {"maxSurge": 0, "maxUnavailable": "00%"}}, Reason.INVALID_SPEC, "spec.rollout"),
        ({"rollout": {"maxSurge": "25"}}, Reason.INVALID_SPEC, "spec.rollout.maxSurge"),
        ({"rollout": {"maxSurge": "101%"}}, Reason.INVALID_SPEC, "spec.rollout.maxSurge"),
        ({"cache": {"l1Size": "0"}}, Reason.INVALID_SPEC, "spec.cache.l1Size 0"),
        ({"cache": {"l1Size": "99999999999999999999999999999Pi"}}, Reason.INVALID_SPEC, "1Pi at most"),
        (
            {"couchbase": {"bucket": {"memoryQuota": "1025Ti"}}},
            Reason.INVALID_SPEC,
            "spec.couchbase.bucket.memoryQuota 1025Ti",
        ),
        (
            {"model": {"weights": {"emptyDir": {"sizeLimit": "0"}}}},
            Reason.INVALID_SPEC,
            "spec.model.weights.emptyDir.sizeLimit 0",
        ),
        ({"engine": {"startupTimeout": "0s"}}, Reason.INVALID_SPEC, "spec.engine.startupTimeout 0s"),
        ({"engine": {"startupTimeout": "8d"}}, Reason.INVALID_SPEC, "spec.engine.startupTimeout 8d"),
        ({"terminationGracePeriod": "25h"}, Reason.INVALID_SPEC, "spec.terminationGracePeriod 25h"),
        ({"cache": {"ttl": "73000d"}}, Reason.INVALID_SPEC, "spec.cache.ttl 73000d"),
        ({"couchbase": {"bucket": {"maxTTL": "99999d"}}}, Reason.INVALID_SPEC, "spec.couchbase.bucket.maxTTL 99999d"),
        ({"couchbase": {"connectionString": "couchbase://h:99999"}}, Reason.INVALID_SPEC, "connectionString"),
        ({"couchbase": {"managementEndpoints": ["http://h:99999"]}}, Reason.INVALID_SPEC, "managementEndpoints[0]"),
        ({"couchbase": {"managementEndpoints": ["http://[::1"]}}, Reason.INVALID_SPEC, "managementEndpoints[0]"),
        ({"model": {"config": {"hub": {"endpoint": "http://h:0/x"}}}}, Reason.INVALID_SPEC, "hub.endpoint"),
        ({"engine": {"resources": {"limits": "8Gi"}}}, Reason.INVALID_SPEC, "spec.engine.resources.limits"),
        ({"cache": {"resources": {"requests": ["8Gi"]}}}, Reason.INVALID_SPEC, "spec.cache.resources.requests"),
    ],
)
def test_what_cannot_work_is_refused_by_field(changes: dict[str, Any], reason: Reason, named: str) -> None:
    said = verdict(changes)
    assert isinstance(said, Refuse)
    assert said.reason == reason
    assert named in said.message


@pytest.mark.parametrize(
    ("template", "reason", "named"),
    [
        (
            {"volumes": [{"name": "a", "hostPath": {"path": "/"}}]},
            Reason.HOST_PATH_NOT_ALLOWED,
            "spec.podTemplate.volumes[0]",
        ),
        ({"volumes": [{"name": "a", "nfs": {}}]}, Reason.VOLUME_NOT_ALLOWED, "nfs"),
        ({"volumes": [{"name": "shm", "emptyDir": {}}]}, Reason.VOLUME_NOT_ALLOWED, "'shm'"),
        ({"volumeMounts": [{"name": "a", "mountPath": "/dev"}]}, Reason.VOLUME_NOT_ALLOWED, "volumeMounts[0]"),
        ({"volumeMounts": [{"name": "a", "mountPath": "//plugin/./"}]}, Reason.VOLUME_NOT_ALLOWED, "volumeMounts[0]"),
        ({"volumeMounts": [{"name": "a", "mountPath": "/"}]}, Reason.VOLUME_NOT_ALLOWED, "volumeMounts[0]"),
        (
            {"volumeMounts": [{"name": "couchbase-credentials", "mountPath": "/x"}]},
            Reason.VOLUME_NOT_ALLOWED,
            "couchbase-credentials",
        ),
        (
            {"metadata": {"labels": {"app.kubernetes.io/instance": "x"}}},
            Reason.LABEL_NOT_ALLOWED,
            "app.kubernetes.io/instance",
        ),
        (
            {"metadata": {"annotations": {"lmcache-couchbase.io/x": "y"}}},
            Reason.LABEL_NOT_ALLOWED,
            "lmcache-couchbase.io/x",
        ),
    ],
)
def test_a_pod_template_may_not_take_what_is_ours(template: dict[str, Any], reason: Reason, named: str) -> None:
    said = verdict({"podTemplate": template})
    assert isinstance(said, Refuse)
    assert said.reason == reason
    assert named in said.message


def test_host_paths_are_for_installations_that_allow_them() -> None:
    spec = spec_of(podTemplate={"volumes": [{"name": "a", "hostPath": {"path": "/x"}}]})
    allowed = replace(RELEASE, allow_host_path=True)
    assert check(spec, observed_with(config_of(QWEN3_8B)), allowed) == Proceed()


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (Missing("Secret hub-token of spec.model.tokenSecretRef"), Reason.SECRET_MISSING),
        (Missing("ConfigMap ca of spec.couchbase.tls.caConfigMapRef"), Reason.CONFIG_MAP_MISSING),
        (Unread("Secret x of spec", "the API server answered Forbidden"), Reason.REFERENCE_UNREADABLE),
    ],
)
def test_objects_that_pods_mount_are_waited_for(found: Any, reason: Reason) -> None:
    for observed in ({"referenced": (found,)}, {"ca_pem": found}):
        said = verdict({}, **observed)
        assert isinstance(said, Wait)
        assert (said.reason, said.delay_seconds) == (reason, 15.0)
        assert found.what in said.message


def test_external_credentials_are_waited_for_but_our_own_are_not() -> None:
    missing = Missing("Secret u of spec.couchbase.credentialsSecretRef")
    external = {
        "couchbase": {
            "provisioning": "External",
            "credentialsSecretRef": {"name": "u"},
            "bucket": {"name": "b"},
            "scope": "s",
            "collection": "c",
        }
    }
    assert isinstance(verdict(external, user_credentials=missing), Wait)
    assert verdict({}, user_credentials=missing) == Proceed()


def test_the_engines_never_log_in_as_the_administrator() -> None:
    admin = SecretValue("cb-admin", "1", {"username": "Administrator", "password": "x"})
    said = verdict({"couchbase": {"user": {"name": "Administrator"}}}, admin_credentials=admin)
    assert isinstance(said, Refuse)
    assert said.reason == Reason.USER_NAME_REFUSED
    assert "spec.couchbase.user.name" in said.message
    assert verdict({"couchbase": {"user": {"name": "engines"}}}, admin_credentials=admin) == Proceed()
