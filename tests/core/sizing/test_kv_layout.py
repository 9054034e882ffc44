"""Groups, blocks and ranks of layouts, and flags that do not go together."""

from __future__ import annotations

from typing import Any

import pytest

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.engine.engine_layout import EngineLayout
from couchbase_lm_operator.core.model.model_shape import overridden_shape, read_shape
from couchbase_lm_operator.core.refusal import RefusedError
from couchbase_lm_operator.core.sizing.kv_layout import KvLayout, layout
from couchbase_lm_operator.core.sizing.sizing import SizingInputs, size
from tests.core.model_configs import VALID, latent, plain
from tests.core.sizing_truth import PUBLIC_MODELS

GEMMA3 = next(row.config for row in PUBLIC_MODELS if row.model == "Gemma-3-27B")
QWEN35 = next(row.config for row in PUBLIC_MODELS if row.model == "Qwen/Qwen3.5-27B")
DEEPSEEK = latent("deepseek_v3", 61)


def layout_of(config: dict[str, Any], **engine: Any) -> KvLayout:
    return layout(read_shape(config, "config.json"), EngineLayout(**engine))


def refusal(config: dict[str, Any], **engine: Any) -> tuple[str, str]:
    with pytest.raises(RefusedError) as caught:
        layout_of(config, **engine)
    return caught.value.verdict.reason, caught.value.verdict.message


@pytest.mark.parametrize("config", [GEMMA3, QWEN35, DEEPSEEK, {**VALID["gemma3n_text"], "num_hidden_layers": 9}])
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_stages_hold_the_whole_model_however_unevenly_it_is_split(config: dict[str, Any], stages: int) -> None:
    shape, whole = read_shape(config, "c"), layout_of(config)
    split = layout_of(config, pipeline_parallel_size=stages)
    assert split.block_tokens == whole.block_tokens
    assert split.attention_bytes_per_token == whole.attention_bytes_per_token
    inputs = {"context_tokens": 20_000, "chunk_tokens": 4 * whole.block_tokens, "is_engine_driven": False}
    together = size(shape, SizingInputs(EngineLayout(), **inputs))
    apart = size(shape, SizingInputs(EngineLayout(pipeline_parallel_size=stages), **inputs))
    assert apart.bytes_per_context == together.bytes_per_context
    assert apart.loaded_bytes_per_context == together.loaded_bytes_per_context
    assert sum(apart.object_bytes) * stages >= sum(together.object_bytes)


def test_with_context_parallelism_ranks_share_the_tokens_of_latent_attention() -> None:
    alone, shared = layout_of(DEEPSEEK), layout_of(DEEPSEEK, tensor_parallel_size=8, decode_context_parallel_size=4)
    assert (shared.block_tokens, shared.ranks) == (4 * alone.block_tokens, 4)
    assert 4 * shared.object_bytes(1024)[0] == alone.object_bytes(1024)[0]
    assert shared.evidence == "formula"


@pytest.mark.parametrize("config", [GEMMA3, QWEN35])
def test_context_parallelism_beside_windows_or_states_is_refused(config: dict[str, Any]) -> None:
    reason, message = refusal(config, tensor_parallel_size=2, decode_context_parallel_size=2)
    assert reason == Reason.MODEL_NOT_SUPPORTED
    assert "decodeContextParallelSize" in message


def test_without_the_hybrid_manager_windows_are_kept_in_full_and_one_group_remains() -> None:
    mixed, whole = layout_of(GEMMA3), layout_of(GEMMA3, hybrid_kv_cache=False)
    assert not mixed.is_single_transfer_group
    assert whole.is_single_transfer_group
    assert len(whole.object_bytes(2048)) == 1
    assert whole.object_bytes(2048)[0] > sum(mixed.object_bytes(2048))


def test_a_model_whose_layers_all_slide_is_one_group_as_it_is() -> None:
    config = plain("mistral", 4, 4, 2, 64, sliding_window=128)
    assert layout_of(config, hybrid_kv_cache=False).object_bytes(256) == layout_of(config).object_bytes(256)


def test_states_bring_the_flags_that_they_need() -> None:
    found = layout_of(QWEN35)
    assert found.separate_object_groups
    assert found.required_flags == {
        "vllm": {"--mamba-cache-mode": "align", "--max-num-batched-tokens": "1567"},
        "lmcache": {"--separate-object-groups": ""},
    }
    assert layout_of(DEEPSEEK).required_flags == {"vllm": {}, "lmcache": {}}


def test_a_small_block_still_takes_steps_of_a_whole_chunk() -> None:
    found = layout_of(VALID["lfm2"])
    assert found.block_tokens == 16
    assert found.required_flags["vllm"]["--max-num-batched-tokens"] == str(256 + 15)


@pytest.mark.parametrize(
    ("backend", "block_tokens"),
    [(None, 64), ("FLASHMLA", 64), ("CUTLASS_MLA", 128), ("FLASHINFER_MLA", 32), ("TRITON_MLA", 16)],
)
def test_the_block_of_latent_attention_is_the_backends(backend: str | None, block_tokens: int) -> None:
    assert layout_of(DEEPSEEK, attention_backend=backend).block_tokens == block_tokens


@pytest.mark.parametrize(
    ("engine", "named"),
    [
        ({"platform": "tpu"}, "Platform"),
        ({"tensor_parallel_size": 0}, "tensorParallelSize"),
        ({"tensor_parallel_size": -2}, "tensorParallelSize"),
        ({"tensor_parallel_size": 1 << 40}, "tensorParallelSize"),
        ({"tensor_parallel_size": 3}, "tensorParallelSize"),
        ({"pipeline_parallel_size": 62}, "pipelineParallelSize"),
        ({"decode_context_parallel_size": 2}, "decodeContextParallelSize"),
        ({"block_size": -16}, "blockSize"),
        ({"block_size": 17}, "blockSize"),
        ({"block_size": 32, "platform": "cpu", "kv_cache_dtype": "int3"}, "kvCacheDtype"),
        ({"kv_cache_dtype": "fp8_ds_mla"}, "kvCacheDtype"),
        ({"speculative_method": "eagle"}, "eagle"),
        ({"speculative_method": "mtp"}, "num_nextn_predict_layers"),
    ],
)
def test_flags_that_do_not_fit_are_refused_by_name(engine: dict[str, Any], named: str) -> None:
    assert named in refusal({**DEEPSEEK, "num_nextn_predict_layers": 0}, **engine)[1]


def test_speculation_with_states_is_refused() -> None:
    assert "ngram" in refusal(QWEN35, speculative_method="ngram")[1]


def test_a_16_bit_state_makes_the_block_smaller() -> None:
    nemotron = next(row.config for row in PUBLIC_MODELS if row.model == "nvidia/Nemotron-H-56B-Base-8K")
    assert layout_of(nemotron).block_tokens == 4128
    assert layout_of(nemotron, mamba_ssm_cache_dtype="bfloat16").block_tokens == 2080


def test_numbers_that_a_person_gave_need_a_block() -> None:
    shape = overridden_shape({"model_type": "new", "max_position_embeddings": 1000}, 8064, "c")
    assert layout(shape, EngineLayout(block_size=1024)).object_bytes(2048) == (2048 * 8064,)
    with pytest.raises(RefusedError, match="blockSize"):
        layout(shape, EngineLayout())


@pytest.mark.parametrize("changes", [{"contexts": 0}, {"contexts": -1}, {"contexts": 1 << 60}, {"chunk_tokens": 0}])
def test_absurd_wishes_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(RefusedError, match="must be from"):
        size(read_shape(DEEPSEEK, "c"), SizingInputs(**changes))


def test_replicas_need_as_many_more_nodes_and_memory() -> None:
    shape = read_shape(DEEPSEEK, "c")
    single = size(shape, SizingInputs(contexts=1000))
    doubled = size(shape, SizingInputs(contexts=1000, bucket_replicas=1, data_nodes=2))
    assert doubled.quota_per_node_bytes == single.quota_per_node_bytes
    assert doubled.quota_bytes == 2 * single.quota_bytes
    with pytest.raises(RefusedError, match="data nodes"):
        size(shape, SizingInputs(bucket_replicas=2, data_nodes=2))


def test_a_context_below_two_blocks_is_warned_about() -> None:
    nemotron = next(row.config for row in PUBLIC_MODELS if row.model == "nvidia/Nemotron-H-56B-Base-8K")
    sized = size(read_shape(nemotron, "c"), SizingInputs(context_tokens=8000, is_engine_driven=False))
    assert "less than two blocks of 4128" in sized.warnings[0]
