"""The command line as people and scripts use it: output, exit codes, sentences."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner, Result

from couchbase_lm_operator.__main__ import main
from couchbase_lm_operator.api.crd import crd, crd_yaml
from tests.apiserver import ApiServer
from tests.core.planning import QWEN3_8B, spec_dict

if TYPE_CHECKING:
    from pathlib import Path

QUICKSTART = "examples/quickstart.yaml"


def lmcb(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=text)


def resource(**changes: Any) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "lmcache-couchbase.io/v1alpha1",
            "kind": "LMCacheCouchbase",
            "metadata": {"name": "demo"},
            "spec": spec_dict(**changes),
        }
    )


@pytest.fixture
def config_path(tmp_path: Path) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(QWEN3_8B))
    return str(path)


def test_plan_of_the_quickstart_shows_numbers_choices_and_manifests() -> None:
    result = lmcb("plan", QUICKSTART)
    assert result.exit_code == 0, result.output
    lines = {line.split()[0]: line for line in result.output.splitlines() if line.split()}
    assert lines["attentionBytesPerToken"].split()[1] == "46080"
    assert lines["documentsPerChunk"].split()[1] == "13"
    assert lines["worthwhile"].split()[1] == "yes"
    assert "vLLM's own for vendor CPU" in lines["engine.blockSize"]
    assert "unknown" in lines["couchbase.bucket.memoryQuota"]
    assert "lmcache-<cluster>-smollm2" in lines["couchbase.bucket.name"]
    manifests = list(yaml.safe_load_all(result.output[result.output.index("---\n") :]))
    assert [manifest["kind"] for manifest in manifests] == ["Deployment", "Service"]


def test_a_plan_has_straight_columns() -> None:
    result = lmcb("plan", QUICKSTART)
    choices = next(part for part in result.output.split("\n\n") if part.startswith("FIELD"))
    head, *rows = choices.splitlines()
    assert any("<cluster>" in row for row in rows)
    for name in ("VALUE", "REASON"):
        start = head.index(name)
        assert [row for row in rows if row[start - 2 : start] != "  " or row[start] == " "] == []


def test_a_plan_says_when_its_key_prefix_is_not_the_one_of_the_cluster(tmp_path: Path, config_path: str) -> None:
    def told(**changes: Any) -> str:
        model = {"id": "/weights/m", "config": {"configMapRef": {"name": "c"}}, **changes}
        file = tmp_path / "resource.yaml"
        file.write_text(resource(model=model))
        result = lmcb("plan", str(file), "--model-config", config_path, "-o", "json")
        assert result.exit_code == 0, result.output
        return str(json.loads(result.output)["unknown"]["<cluster>"])

    assert "keyPrefix" in told(weights={"pvc": {"claimName": "models"}})
    assert "keyPrefix" not in told()


@pytest.mark.parametrize(("form", "load"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_plan_for_programs(form: str, load: Any) -> None:
    result = lmcb("plan", QUICKSTART, "-o", form, "-n", "team")
    assert result.exit_code == 0, result.output
    found = load(result.output)
    assert found["numbers"]["objectBytes"] == found["status"]["model"]["objectBytes"] == [11_796_480]
    assert found["status"]["capacity"]["worthwhile"] is True
    assert found["status"]["transfer"]["mode"] == "EngineDriven"
    assert {"field", "value", "reason"} == set(found["choices"][0])
    assert "couchbase.bucket.replicas" in found["unknown"]
    for manifest in found["manifests"]:
        assert manifest["metadata"]["namespace"] == "team"
        kubernetes_validate.validate(manifest, "1.34", strict=True)


def test_plan_with_the_config_of_a_hub_model(config_path: str) -> None:
    result = lmcb("plan", "-", "--model-config", config_path, text=resource())
    assert result.exit_code == 0, result.output
    assert "model.revision" in result.output  # only the hub knows the commit


def test_plan_of_an_external_resource_does_not_invent_its_user(config_path: str) -> None:
    external = {
        "provisioning": "External",
        "credentialsSecretRef": {"name": "u"},
        "bucket": {"name": "b"},
        "scope": "_default",
        "collection": "_default",
    }
    result = lmcb("plan", "-", "--model-config", config_path, "-o", "json", text=resource(couchbase=external))
    found = json.loads(result.output)
    assert "couchbase.user.name" in found["unknown"]
    assert "couchbase.user.name" not in {choice["field"] for choice in found["choices"]}
    assert "couchbase.bucket.memoryQuota" not in found["unknown"]


def test_plan_asks_nobody_for_a_hub_model() -> None:
    result = lmcb("plan", "-", text=resource())
    assert result.exit_code == 2
    assert "--model-config" in result.output


def test_plan_takes_the_config_map_of_the_same_namespace() -> None:
    other = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "elsewhere"},
        "data": {"config.json": json.dumps(QWEN3_8B)},
    }
    text = resource(model={"config": {"configMapRef": {"name": "c"}}}) + "---\n" + yaml.safe_dump(other)
    result = lmcb("plan", "-", text=text)
    assert result.exit_code == 3
    assert "ModelConfigMissing" in result.output
    found = lmcb("plan", "-", "-n", "elsewhere", text=text)
    assert found.exit_code == 0
    # the hub is not asked when a ConfigMap has the config: nobody resolves a revision
    assert "model.revision" not in [line.split()[0] for line in found.output.splitlines() if line.strip()]
    assert "Warning: spec.model.revision" in found.output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "0 objects of kind LMCacheCouchbase"),
        ("{", "is not YAML"),
        ("just text", "no kind or no metadata"),
        ("kind: LMCacheCouchbase\nmetadata: {name: a}\n", "apiVersion"),
        (resource() + "---\n" + resource(), "2 objects"),
        (resource(unknown=1), "spec.unknown"),
        (resource(replicas="many"), "spec.replicas"),
        (resource(couchbase={"connectionString": "http://x"}), "spec.couchbase.connectionString"),
        (resource(engine={"dtype": "int4"}), "spec.engine.dtype"),
        ("[" * 100_000, "-"),
    ],
    ids=range(10),
)
def test_bad_input_ends_with_2_and_names_what_is_wrong(text: str, said: str) -> None:
    result = lmcb("plan", "-", text=text)
    assert result.exit_code == 2, result.output
    assert said in result.output
    assert "Traceback" not in result.output


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    result = lmcb("plan", str(tmp_path / "nope.yaml"))
    assert result.exit_code == 2
    assert "nope.yaml" in result.output


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"engine": {"extraArgs": ["--block_size=8"]}}, "FlagNotAllowed: spec.engine.extraArgs[0]"),
        ({"cache": {"chunkSize": 100}}, "ChunkSizeInvalid: spec.cache.chunkSize 100"),
        ({"podTemplate": {"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}}, "HostPathNotAllowed"),
    ],
)
def test_what_the_operator_would_refuse_ends_with_3(config_path: str, changes: dict[str, Any], said: str) -> None:
    result = lmcb("plan", "-", "--model-config", config_path, text=resource(**changes))
    assert result.exit_code == 3
    assert said in result.output


def test_host_paths_can_be_planned_for_an_operator_that_allows_them(config_path: str) -> None:
    text = resource(podTemplate={"volumes": [{"name": "a", "hostPath": {"path": "/x"}}]})
    assert lmcb("plan", "-", "--model-config", config_path, "--allow-host-path", text=text).exit_code == 0


def test_crds_prints_what_the_repository_keeps() -> None:
    result = lmcb("crds")
    assert result.output == crd_yaml()
    assert yaml.safe_load(result.output) == crd()


def test_crds_apply_brings_the_crd_into_a_cluster_and_repeats() -> None:
    with ApiServer() as server:
        for _ in range(2):
            result = lmcb("crds", "apply", "--kubeconfig", str(server.kubeconfig))
            assert result.exit_code == 0, result.output
            assert "lmcachecouchbases.lmcache-couchbase.io applied" in result.output


def test_crds_apply_says_why_it_cannot(tmp_path: Path) -> None:
    result = lmcb("crds", "apply", "--kubeconfig", str(tmp_path / "none"))
    assert result.exit_code == 1
    assert "Traceback" not in result.output


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "couchbase_lm_operator", "--help"], capture_output=True, text=True, check=True
    )
    for command in ("run", "plan", "size", "crds"):
        assert command in done.stdout
