"""No spelling gets past the flags that the operator owns."""

from __future__ import annotations

import pytest

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.adapter_settings import ADAPTER_SETTINGS
from couchbase_lm_operator.core.engine import flags
from couchbase_lm_operator.core.pod_template.engine_container import engine_arguments
from tests.core.planning import QWEN3_8B, container, plan_of, rendered, spec_of

FIELD = "spec.engine.extraArgs"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--block-size", "16"],
        ["--block_size", "16"],
        ["--block-size=16"],
        ["--block_size=16"],
        ["--Block-Size=16"],
        ["--block"],
        ["--max-num-seqs", "4", "--max-model", "100"],
        ["-tp", "2"],
        ["-tp=2"],
        ["-tp2"],
        ["-dpn", "1"],
        ["--data-parallel-rank", "1"],
        ["--config", "/x.yaml"],
        ["--config=/x.yaml"],
        ["--kv-transfer-config.kv_role", "kv_consumer"],
        ["--kv_transfer_config.kv_connector_extra_config.x=1"],
        ["--kv-transfer-config.list+", "1"],
        ["--speculative-config", "{}"],
        ["--spec-tokens", "3"],
        ["--mamba-cache-mode", "all"],
        ["--mamba-block-size=64"],
        ["--disable-hybrid-kv-cache-manager"],
        ["--no-disable-hybrid-kv-cache-manager"],
        ["--disable_sliding_window"],
        ["--hf-overrides", "{}"],
        ["--attention-config.backend", "X"],
        ["--port", "9"],
        ["--api-key", "k"],
        ["--hf-token", "t"],
        ["$(ANY)"],
        ["--$(ANY)", "1"],
        ["--seed", "$(ANY)"],
        ["model-again"],
    ],
    ids=" ".join,
)
def test_owned_flags_of_vllm_are_refused(arguments: list[str]) -> None:
    refusal = flags.refused_vllm_argument(arguments, FIELD)
    assert refusal is not None
    assert refusal.reason == Reason.FLAG_NOT_ALLOWED
    assert refusal.message.startswith(FIELD)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--enable-lora"],
        ["--enable_lora"],
        ["--enable-lor"],
        ["--lora-modules", "a=b"],
        ["--max-loras=2"],
        ["--max_lo=2"],
        ["--fully-sharded-loras"],
        ["--fully-sharded"],
    ],
    ids=" ".join,
)
def test_lora_is_refused_with_a_reason_of_its_own(arguments: list[str]) -> None:
    refusal = flags.refused_vllm_argument(arguments, FIELD)
    assert refusal is not None
    assert refusal.reason == Reason.LORA_NOT_SUPPORTED


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--max-num-seqs", "16"],
        ["--enforce-eager"],
        ["-O3"],
        ["-O.mode", "0"],
        ["--tokenizer", "other/tokenizer"],
        ["--seed=$(SEED)"],
        ["--trust-remote-code", "--quantization", "awq"],
        ["--max-num-batched-tokens=4096"],
        ["--chat-template", "/t.jinja"],
    ],
    ids=" ".join,
)
def test_other_flags_of_vllm_are_the_users(arguments: list[str]) -> None:
    assert flags.refused_vllm_argument(arguments, FIELD) is None


def test_every_flag_that_is_rendered_is_owned() -> None:
    spec = spec_of(engine={"gpuMemoryUtilization": "0.9"})
    plan = plan_of(spec)
    for argument in engine_arguments(spec, plan.values, plan.sizing.layout, "engine_driven", 40):
        if argument.startswith("--"):
            assert flags.refused_vllm_argument([argument], FIELD) is not None, argument
    for argument in container(rendered(spec, QWEN3_8B), "lmcache")["args"]:
        if argument.startswith("--") and argument != "--eviction-policy":
            assert flags.refused_lmcache_argument([argument], "spec.cache.extraArgs") is not None, argument


@pytest.mark.parametrize(
    "arguments",
    [
        ["--chunk-size", "64"],
        ["--chunk_size=64"],
        ["--chunk", "64"],
        ["--l1-size", "1"],
        ["--l2-adapter", "{}"],
        ["--http-host=0.0.0.0"],
        ["--l1-use-lazy"],
        ["--run-script-api-enabled"],
        ["--separate-object-groups"],
        ["--worker-reap-timeout-seconds", "5"],
        ["$(X)"],
    ],
    ids=" ".join,
)
def test_owned_flags_of_the_lmcache_server_are_refused(arguments: list[str]) -> None:
    assert flags.refused_lmcache_argument(arguments, "spec.cache.extraArgs") is not None


@pytest.mark.parametrize(
    "arguments",
    [["--eviction-policy", "ARC"], ["--l2-prefetch-policy", "retain"], ["--max-cpu-workers", "2"]],
    ids=" ".join,
)
def test_other_flags_of_the_lmcache_server_are_the_users(arguments: list[str]) -> None:
    assert flags.refused_lmcache_argument(arguments, "spec.cache.extraArgs") is None


@pytest.mark.parametrize(
    "arguments",
    [["--api-key=very-secret"], ["very-secret"], ["--x", "very-secret$(Y)"], ["--$(X)=very-secret"]],
    ids=" ".join,
)
def test_a_refusal_never_repeats_a_value(arguments: list[str]) -> None:
    refusal = flags.refused_vllm_argument(arguments, FIELD)
    assert refusal is not None
    assert "very-secret" not in refusal.message


@pytest.mark.parametrize(
    "name", ["HOME", "USER", "HF_HOME", "LMCACHE_COUCHBASE_PASSWORD", "LMCACHE_CONFIG_FILE", "VLLM_MLA_DISABLE"]
)
def test_owned_variables_are_refused(name: str) -> None:
    refusal = flags.refused_env([{"name": name, "value": "x"}], "spec.engine.env", is_sidecar=False)
    assert refusal is not None
    assert name in refusal.message


def test_the_sidecar_keeps_its_import_path_and_sees_no_gpu() -> None:
    for name in ("PYTHONPATH", "NVIDIA_VISIBLE_DEVICES"):
        entries = [{"name": name, "value": "x"}]
        assert flags.refused_env(entries, "spec.cache.env", is_sidecar=True) is not None
        assert flags.refused_env(entries, "spec.engine.env", is_sidecar=False) is None


def test_owned_parameters_of_the_adapter_are_refused() -> None:
    for name in flags.ADAPTER_PARAMS_OWNED:
        assert flags.refused_adapter_param({name: "x"}, "spec.cache.adapterParams") is not None
    assert flags.refused_adapter_param({"max_workers": 8}, "spec.cache.adapterParams") is None


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("max_worker", "did you mean max_workers?"),
        ("frobnicate", "allowed are connect_timeout_seconds, "),
        # what only the operator may set is never advised
        ("bucket_nam", "allowed are connect_timeout_seconds, "),
    ],
)
def test_unknown_parameters_of_the_adapter_are_refused_before_a_pod_starts(name: str, advice: str) -> None:
    refusal = flags.refused_adapter_param({"max_workers": 8, name: 1}, "spec.cache.adapterParams")
    assert refusal is not None
    assert refusal.reason == Reason.ADAPTER_PARAM_UNKNOWN
    assert refusal.message.startswith(f"spec.cache.adapterParams.{name} is not a setting")
    assert advice in refusal.message


def test_what_the_operator_sets_are_settings_of_the_adapter() -> None:
    assert flags.ADAPTER_PARAMS_OWNED <= ADAPTER_SETTINGS
