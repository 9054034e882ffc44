"""The device backend in the pod: its own wheels and volume in both containers, and who is told to copy."""

from __future__ import annotations

import json
from typing import Any

import kubernetes_validate
import pytest

from tests.core.planning import container, flag_value, pod_spec, rendered, spec_of

HOSTCPU = {"vendor": "CPU", "deviceBackend": "hostcpu"}
SMALL = {"env": [{"name": "VLLM_CPU_KVCACHE_SPACE", "value": "1"}]}


def _manifests(**changes: Any) -> dict[str, Any]:
    return rendered(spec_of(accelerator=HOSTCPU, engine=SMALL, **changes))


def _environment(item: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in item["env"]}


def _mounts(item: dict[str, Any]) -> dict[str, str]:
    return {mount["name"]: mount["mountPath"] for mount in item["volumeMounts"]}


def test_both_containers_find_the_backend_and_only_the_server_the_adapter() -> None:
    manifests = _manifests()
    engine, server = container(manifests, "vllm"), container(manifests, "lmcache")
    for item in (engine, server):
        assert _environment(item)["LMCACHE_DEVICE_BACKEND"] == "hostcpu"
        assert {"name": "device-backend", "mountPath": "/device", "readOnly": True} in item["volumeMounts"]
    assert _environment(engine)["PYTHONPATH"] == "/device/site"
    assert _environment(server)["PYTHONPATH"] == "/plugin/site:/device/site"
    assert "plugin" not in _mounts(engine)


@pytest.mark.parametrize(("source", "others"), [("Bundled", ["wheelhouse", "install-plugin"]), ("Preinstalled", [])])
def test_its_wheel_is_unpacked_before_the_server_starts(source: str, others: list[str]) -> None:
    manifests = _manifests(plugin={"source": source})
    names = [each["name"] for each in pod_spec(manifests)["initContainers"]]
    assert names == [*others, "device-wheelhouse", "install-device", "lmcache"]
    copy, install = container(manifests, "device-wheelhouse"), container(manifests, "install-device")
    assert copy["args"] == ["copy", "/device", "--source", "/opt/devices/hostcpu"]
    assert (copy["image"], install["image"]) == ("example.com/operator:1", container(manifests, "vllm")["image"])
    assert install["args"] == ["--from", "/device/wheelhouse", "--into", "/device/site"]
    for item in (copy, install):
        assert _mounts(item)["device-backend"] == "/device"
        assert "plugin" not in _mounts(item)


def test_without_a_backend_nothing_of_it_is_in_the_pod() -> None:
    manifests = rendered(spec_of(accelerator={"vendor": "CPU"}))
    text = json.dumps(manifests)
    assert "/device" not in text
    assert "LMCACHE_DEVICE_BACKEND" not in text
    assert "PYTHONPATH" not in _environment(container(manifests, "vllm"))


@pytest.mark.parametrize(
    ("transfer", "mode", "reaps_after"),
    [("EngineDriven", "engine_driven", "0"), ("LMCacheDriven", "lmcache_driven", "120")],
)
def test_both_programs_are_told_who_copies(transfer: str, mode: str, reaps_after: str) -> None:
    manifests = _manifests(cache={"transfer": transfer, "l1Size": "1Gi"})
    engine, server = container(manifests, "vllm"), container(manifests, "lmcache")
    config = json.loads(flag_value(engine, "--kv-transfer-config"))
    assert config["kv_connector_extra_config"]["lmcache.mp.mp_transfer_mode"] == mode
    assert flag_value(server, "--supported-transfer-mode") == mode
    assert flag_value(server, "--worker-reap-timeout-seconds") == reaps_after
    assert ("--shm-name" in server["args"]) is (transfer == "EngineDriven")


def test_shared_memory_for_lmcache_driven_counts_in_the_limits_of_both() -> None:
    limits = {"resources": {"limits": {"memory": "6Gi"}}}
    spec = spec_of(
        accelerator=HOSTCPU, engine={**SMALL, **limits}, cache={"transfer": "LMCacheDriven", "l1Size": "1Gi"}
    )
    manifests = rendered(spec)
    volumes = {each["name"]: each for each in pod_spec(manifests)["volumes"]}
    assert volumes["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "4Gi"}
    assert container(manifests, "vllm")["resources"]["limits"]["memory"] == "10Gi"
    assert container(manifests, "lmcache")["resources"]["limits"]["memory"] == "7Gi"


def test_the_pod_is_valid() -> None:
    deployment = _manifests(cache={"transfer": "LMCacheDriven"})["Deployment"]
    kubernetes_validate.validate(deployment, "1.34", strict=True)
