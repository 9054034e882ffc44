"""The rendered objects: valid, restricted, and as the pod's rules say."""

from __future__ import annotations

import json
import re
from importlib import resources
from typing import Any

import kubernetes_validate
import pytest
import yaml

from couchbase_lm_operator.core.pod_template.pod import grace_times
from couchbase_lm_operator.core.render import render
from tests.core.planning import (
    QWEN3_8B,
    SMOLLM2,
    container,
    flag_value,
    plan_of,
    pod_spec,
    rendered,
    spec_of,
)

KUBERNETES = "1.34"
QUICKSTART_LIKE: dict[str, Any] = {
    "model": {"id": "/models/smollm2-135m-instruct", "config": {"configMapRef": {"name": "c"}}},
    "accelerator": {"vendor": "CPU"},
    "engine": {
        "env": [{"name": "VLLM_CPU_KVCACHE_SPACE", "value": "1"}],
        "resources": {"requests": {"cpu": "400m", "memory": "3Gi"}, "limits": {"memory": "6Gi"}},
    },
}
EVERYTHING: dict[str, Any] = {
    "model": {
        "revision": "main",
        "tokenSecretRef": {"name": "hub", "key": "token"},
        "config": {"hub": {"endpoint": "https://mirror.example.com"}},
        "weights": {"pvc": {"claimName": "weights"}},
    },
    "couchbase": {
        "connectionString": "couchbases://a,b?network=external",
        "tls": {"caSecretRef": {"name": "ca", "key": "ca.crt"}},
        "bucket": {"maxTTL": "48h"},
    },
    "cache": {"adapterParams": {"max_workers": 8}, "extraArgs": ["--eviction-policy", "ARC"], "ttl": "0"},
    "engine": {
        "tensorParallelSize": 2,
        "kvCacheDtype": "fp8",
        "gpuMemoryUtilization": "0.9",
        "extraArgs": ["--max-num-seqs", "4"],
        "envFrom": [{"configMapRef": {"name": "more"}}],
    },
    "rollout": {"maxSurge": "25%", "maxUnavailable": 0},
    "service": {"type": "NodePort", "port": 80, "annotations": {"a": "b"}},
    "podTemplate": {
        "metadata": {"labels": {"team": "x"}, "annotations": {"note": "a: b # c"}},
        "imagePullSecrets": [{"name": "pull"}],
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
        ],
        "priorityClassName": "high",
        "schedulerName": "other",
        "serviceAccountName": "engine",
        "runAsUser": 2000,
        "fsGroup": 3000,
        "volumes": [{"name": "extra", "persistentVolumeClaim": {"claimName": "e"}}],
        "volumeMounts": [{"name": "extra", "mountPath": "/extra"}],
    },
}
CASES = {
    "NVIDIA": ({}, QWEN3_8B),
    "CPU": (QUICKSTART_LIKE, SMOLLM2),
    "everything": (EVERYTHING, QWEN3_8B),
    "preinstalled": ({"plugin": {"source": "Preinstalled"}}, QWEN3_8B),
    "no replicas": ({"replicas": 0}, QWEN3_8B),
}


def manifests_of(case: str) -> dict[str, Any]:
    changes, content = CASES[case]
    return rendered(spec_of(**changes), content)


@pytest.mark.parametrize("case", CASES)
def test_objects_are_valid(case: str) -> None:
    manifests = manifests_of(case)
    assert set(manifests) == {"Deployment", "Service"}
    for manifest in manifests.values():
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


@pytest.mark.parametrize("case", CASES)
def test_every_container_meets_pod_security_restricted(case: str) -> None:
    spec = pod_spec(manifests_of(case))
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    for each in [*spec["initContainers"], *spec["containers"]]:
        context = each["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert each["command"], each["name"]
        assert each["resources"]["requests"]["memory"]
        assert each["resources"]["requests"]["cpu"]


@pytest.mark.parametrize("case", CASES)
def test_labels_tell_instance_and_selector_apart(case: str) -> None:
    manifests = manifests_of(case)
    selector = manifests["Deployment"]["spec"]["selector"]["matchLabels"]
    assert selector == {"app.kubernetes.io/name": "lmcache-couchbase", "app.kubernetes.io/instance": "demo"}
    assert selector.items() <= manifests["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    assert manifests["Service"]["spec"]["selector"] == selector


def test_the_sidecar_starts_before_vllm_and_stops_after_it() -> None:
    spec = pod_spec(manifests_of("CPU"))
    assert [each["name"] for each in spec["initContainers"]] == ["wheelhouse", "install-plugin", "lmcache"]
    assert [each["name"] for each in spec["containers"]] == ["vllm"]
    assert spec["initContainers"][-1]["restartPolicy"] == "Always"
    assert spec["initContainers"][-1]["startupProbe"]["exec"]["command"][:2] == ["python3", "-ISc"]


def test_both_containers_share_image_user_and_shared_memory() -> None:
    manifests = manifests_of("everything")
    vllm, lmcache = container(manifests, "vllm"), container(manifests, "lmcache")
    assert vllm["image"] == lmcache["image"]
    shm = {"name": "shm", "mountPath": "/dev/shm"}
    assert shm in vllm["volumeMounts"]
    assert shm in lmcache["volumeMounts"]
    assert pod_spec(manifests)["securityContext"]["runAsUser"] == 2000
    assert pod_spec(manifests)["securityContext"]["fsGroup"] == 3000


def test_the_plugin_and_the_credentials_exist_only_in_the_sidecar() -> None:
    manifests = manifests_of("everything")
    vllm, lmcache = container(manifests, "vllm"), container(manifests, "lmcache")
    for volume in ("plugin", "couchbase-credentials", "couchbase-ca"):
        assert volume not in {mount["name"] for mount in vllm["volumeMounts"]}
        assert {"readOnly": True}.items() <= next(
            mount for mount in lmcache["volumeMounts"] if mount["name"] == volume
        ).items()
    assert {"name": "PYTHONPATH", "value": "/plugin/site"} in lmcache["env"]
    assert "PYTHONPATH" not in {entry["name"] for entry in vllm["env"]}


def test_a_preinstalled_plugin_needs_no_init_containers() -> None:
    manifests = manifests_of("preinstalled")
    assert [each["name"] for each in pod_spec(manifests)["initContainers"]] == ["lmcache"]
    assert "plugin" not in {volume["name"] for volume in pod_spec(manifests)["volumes"]}
    assert "PYTHONPATH" not in {entry["name"] for entry in container(manifests, "lmcache")["env"]}


def test_memory_counts_the_shared_memory_in_both_limits() -> None:
    manifests = manifests_of("CPU")
    shm = next(volume for volume in pod_spec(manifests)["volumes"] if volume["name"] == "shm")
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": "2560Mi"}  # 2 x 1 GiB + 512 MiB
    sidecar = container(manifests, "lmcache")["resources"]
    assert sidecar["requests"]["memory"] == "3Gi"  # L1 + 2 GiB
    assert sidecar["limits"]["memory"] == "5632Mi"  # and the shared memory
    vllm = container(manifests, "vllm")["resources"]
    assert (vllm["requests"]["memory"], vllm["limits"]["memory"]) == ("3Gi", "8704Mi")  # 6 GiB and the shared memory


def test_the_gpus_are_vllms_and_the_sidecar_sees_none() -> None:
    manifests = rendered(spec_of(engine={"tensorParallelSize": 2, "pipelineParallelSize": 2}), QWEN3_8B)
    vllm, lmcache = container(manifests, "vllm"), container(manifests, "lmcache")
    assert vllm["resources"]["limits"]["nvidia.com/gpu"] == "4"
    assert vllm["resources"]["requests"]["nvidia.com/gpu"] == "4"
    assert "nvidia.com/gpu" not in json.dumps(lmcache["resources"])
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in lmcache["env"]


def test_another_resource_name_for_gpus() -> None:
    manifests = rendered(spec_of(accelerator={"resourceName": "nvidia.com/mig-3g.40gb"}), QWEN3_8B)
    assert container(manifests, "vllm")["resources"]["limits"] == {"nvidia.com/mig-3g.40gb": "1"}


def test_without_gpus_nothing_of_nvidia_is_rendered() -> None:
    assert "nvidia" not in json.dumps(manifests_of("CPU")).lower()


def test_cpu_settings_give_way_to_the_users() -> None:
    env = container(manifests_of("CPU"), "vllm")["env"]
    assert [entry["value"] for entry in env if entry["name"] == "VLLM_CPU_KVCACHE_SPACE"] == ["1"]
    assert {"name": "VLLM_CPU_OMP_THREADS_BIND", "value": "nobind"} in env
    default = container(rendered(spec_of(accelerator={"vendor": "CPU"}), QWEN3_8B), "vllm")
    assert {"name": "VLLM_CPU_KVCACHE_SPACE", "value": "4"} in default["env"]
    assert default["resources"]["requests"]["memory"] == "7Gi"


def test_flags_that_real_runs_made_necessary() -> None:
    manifests = manifests_of("CPU")
    lmcache = container(manifests, "lmcache")
    assert "--no-l1-use-lazy" in lmcache["args"]
    assert flag_value(lmcache, "--worker-reap-timeout-seconds") == "0"
    assert flag_value(lmcache, "--host") == flag_value(lmcache, "--http-host") == "127.0.0.1"
    assert flag_value(lmcache, "--supported-transfer-mode") == "engine_driven"
    transfer = json.loads(flag_value(container(manifests, "vllm"), "--kv-transfer-config"))
    extra = transfer["kv_connector_extra_config"]
    assert transfer["kv_connector_module_path"] == "lmcache.integration.vllm.lmcache_mp_connector"
    assert transfer["kv_load_failure_policy"] == "recompute"
    assert (extra["lmcache.mp.mq_timeout"], extra["lmcache.mp.heartbeat_interval"]) == (30, 3)
    assert extra["lmcache.mp.port"] == int(flag_value(lmcache, "--port"))
    for flag in ("--enforce-eager", "--no-enable-prefix-caching"):
        assert flag not in container(manifests, "vllm")["args"]


def test_the_adapter_gets_files_instead_of_secrets() -> None:
    manifests = manifests_of("everything")
    adapter = json.loads(flag_value(container(manifests, "lmcache"), "--l2-adapter"))
    params = adapter["adapter_params"]
    assert params["username_file"] == "/etc/lmcache-couchbase/credentials/username"
    assert params["password_file"] == "/etc/lmcache-couchbase/credentials/password"
    assert params["tls_ca_file"] == "/etc/lmcache-couchbase/ca/ca.crt"
    assert params["connection_string"] == "couchbases://a,b?network=external"
    assert (params["ttl_seconds"], params["refresh_ttl"]) == (0, True)
    assert (params["startup"], params["checksum"], params["require_checksum"]) == ("degraded", "xxh3", True)
    assert params["max_workers"] == 8
    assert not {"username", "password"} & params.keys()
    mounted = {volume["name"]: volume for volume in pod_spec(manifests)["volumes"]}
    assert mounted["couchbase-credentials"]["secret"]["secretName"] == "demo-couchbase"
    assert all("subPath" not in mount for mount in container(manifests, "lmcache")["volumeMounts"])


def test_the_adapters_metrics_have_a_port_of_their_own() -> None:
    manifests = manifests_of("everything")
    lmcache = container(manifests, "lmcache")
    (port,) = lmcache["ports"]
    params = json.loads(flag_value(lmcache, "--l2-adapter"))["adapter_params"]
    assert port["name"] == "metrics"
    assert (params["metrics_host"], params["metrics_port"]) == ("", port["containerPort"])
    taken = {container(manifests, "vllm")["ports"][0]["containerPort"], int(flag_value(lmcache, "--http-port"))}
    assert port["containerPort"] not in {*taken, int(flag_value(lmcache, "--port"))}


def test_chunk_and_l1_of_the_server_are_those_of_the_plan() -> None:
    plan = plan_of(spec_of(cache={"l1Size": "1536Mi"}, engine={"maxModelLen": 1024}), QWEN3_8B)
    manifests = {manifest["kind"]: manifest for manifest in render(plan)}
    lmcache = container(manifests, "lmcache")
    assert flag_value(lmcache, "--l1-size-gb") == "1.5"
    assert flag_value(lmcache, "--chunk-size") == str(plan.sizing.chunk_size_tokens)


def test_kubernetes_expands_variables_only_where_users_wrote_them() -> None:
    manifests = rendered(
        spec_of(
            couchbase={"connectionString": "couchbase://$(HOST)"},
            engine={
                "servedModelName": "$(NAME)",
                "extraArgs": ["--seed=$(SEED)"],
                "env": [{"name": "SEED", "value": "$(BASE)1"}],
            },
        ),
        QWEN3_8B,
    )
    vllm, lmcache = container(manifests, "vllm"), container(manifests, "lmcache")
    assert flag_value(vllm, "--served-model-name") == "$$(NAME)"
    assert "couchbase://$$(HOST)" in flag_value(lmcache, "--l2-adapter")
    assert "--seed=$(SEED)" in vllm["args"]
    assert {"name": "SEED", "value": "$(BASE)1"} in vllm["env"]


@pytest.mark.parametrize("nasty", ['a"b', "a\nb", "{{ 7*7 }}", "a: b # c", "é\u2028", "<&>", "yes", "0x10"])
def test_no_value_breaks_out_of_its_place(nasty: str) -> None:
    manifests = rendered(
        spec_of(
            engine={"extraArgs": ["--seed", nasty], "env": [{"name": "A", "value": nasty}]},
            podTemplate={"metadata": {"annotations": {"note": nasty}}},
        ),
        QWEN3_8B,
    )
    vllm = container(manifests, "vllm")
    assert vllm["args"][-1] == nasty
    assert {"name": "A", "value": nasty} in vllm["env"]
    assert manifests["Deployment"]["spec"]["template"]["metadata"]["annotations"]["note"] == nasty


def test_hub_models_are_pinned_to_their_commit_and_paths_are_offline() -> None:
    hub = container(manifests_of("everything"), "vllm")
    assert flag_value(hub, "--revision") == "0123abcd"
    assert {"name": "HF_HOME", "value": "/weights"} in hub["env"]
    assert {"name": "HF_ENDPOINT", "value": "https://mirror.example.com"} in hub["env"]
    assert {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}} in hub["env"]
    path = container(manifests_of("CPU"), "vllm")
    assert "--revision" not in path["args"]
    assert flag_value(path, "--served-model-name") == "smollm2-135m-instruct"
    assert {"name": "HF_HUB_OFFLINE", "value": "1"} in path["env"]
    assert "weights" not in {volume["name"] for volume in pod_spec(manifests_of("CPU"))["volumes"]}


def test_termination_leaves_time_for_requests_then_stores() -> None:
    manifests = manifests_of("CPU")
    spec = pod_spec(manifests)
    vllm, lmcache = container(manifests, "vllm"), container(manifests, "lmcache")
    assert spec["terminationGracePeriodSeconds"] == 120
    removal, finish = (int(value) for value in vllm["lifecycle"]["preStop"]["exec"]["command"][-2:])
    shutdown = int(flag_value(vllm, "--shutdown-timeout"))
    drain = lmcache["lifecycle"]["preStop"]["exec"]["command"]
    assert drain[-3:-1] == ["8000", "18080"]
    assert (removal, finish, shutdown, int(drain[-1])) == (5, 79, 5, 90)


@pytest.mark.parametrize("total", [10, 11, 20, 30, 59, 60, 120, 600, 86400])
def test_any_grace_period_is_shared_out_in_order(total: int) -> None:
    times = grace_times(f"{total}s")
    assert 0 < times.endpoint_removal_seconds < times.finish_seconds
    assert times.shutdown_seconds > 0
    assert times.finish_seconds + times.shutdown_seconds < times.drain_seconds < times.total_seconds
    assert times.finish_seconds >= total / 2


def test_startup_may_take_as_long_as_the_spec_says() -> None:
    manifests = rendered(spec_of(engine={"startupTimeout": "7m"}), QWEN3_8B)
    probe = container(manifests, "vllm")["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 420
    assert manifests["Deployment"]["spec"]["progressDeadlineSeconds"] == 840


def test_an_engine_is_started_by_a_prompt_of_one_full_chunk() -> None:
    manifests = rendered(spec_of(cache={"chunkSize": 512}), QWEN3_8B)
    probe = container(manifests, "vllm")["startupProbe"]
    assert probe["exec"]["command"][-3:] == ["Qwen/Qwen3-8B", "513", "1800"]
    assert probe["timeoutSeconds"] > 110


def test_templates_show_every_value_through_tojson_and_one_object_each() -> None:
    folder = resources.files("couchbase_lm_operator").joinpath("templates", "vllm")
    for template in folder.iterdir():
        text = template.read_text()
        for expression in re.findall(r"{{(.*?)}}", text):
            inner = expression.strip().rstrip("}").strip()
            assert inner.endswith("tojson") or inner.startswith("container(") or inner == "key", expression
        assert "\n---" not in text


def test_the_quickstart_example_renders() -> None:
    documents = list(yaml.safe_load_all(open("examples/quickstart.yaml")))  # noqa: SIM115, PTH123
    spec = documents[1]["spec"]
    manifests = rendered(spec_of(**spec), json.loads(documents[0]["data"]["config.json"]))
    assert manifests["Deployment"]["spec"]["replicas"] == 2
    requests = [
        each["resources"]["requests"]["cpu"] for each in [container(manifests, "vllm"), container(manifests, "lmcache")]
    ]
    # two pods beside operator, Couchbase and DNS on two cores
    assert sum(int(cpu.removesuffix("m")) for cpu in requests) * 2 <= 1300
