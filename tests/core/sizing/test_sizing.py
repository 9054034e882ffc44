"""Sizes against what real engines stored, and the arithmetic that people rely on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.engine.engine_layout import EngineLayout
from couchbase_lm_operator.core.model.model_shape import overridden_shape, read_shape
from couchbase_lm_operator.core.quantity import GIB, MIB
from couchbase_lm_operator.core.refusal import RefusedError
from couchbase_lm_operator.core.sizing import chunking, sizing
from couchbase_lm_operator.core.sizing.kv_layout import layout
from couchbase_lm_operator.core.sizing.memory_sizing import L1_WATERMARK_PERCENT
from tests.core.planning import QWEN3_8B


def size_of(config: dict[str, Any], engine: dict[str, Any] | None = None, **changes: Any) -> sizing.Sizing:
    """Size a bfloat16 model on CUDA; ``engine`` are its flags, L1 is large unless a test says otherwise."""
    shape = read_shape({"torch_dtype": "bfloat16", **config}, "config.json")
    inputs: dict[str, Any] = {"l1_bytes": 1 << 50, "max_l1_bytes": 1 << 50, **changes}
    return sizing.size(shape, sizing.SizingInputs(engine=EngineLayout(**(engine or {})), **inputs))


@pytest.mark.parametrize(
    ("chunk", "block"),
    [(48, 32), (64, 128), (100, 16)],
)
def test_a_chunk_that_the_engine_refuses_is_refused_before_it_starts(chunk: int, block: int) -> None:
    with pytest.raises(RefusedError) as caught:
        size_of(QWEN3_8B, {"block_size": block}, chunk_tokens=chunk)
    assert caught.value.verdict.reason == Reason.CHUNK_SIZE_INVALID
    assert f"spec.cache.chunkSize {chunk}" in caught.value.verdict.message


def test_fewer_kv_heads_than_ranks_are_kept_once_per_rank() -> None:
    config = {**QWEN3_8B, "num_key_value_heads": 4}
    sized = size_of(config, {"tensor_parallel_size": 8})
    assert sized.attention_bytes_per_token == 2 * size_of(config).attention_bytes_per_token


def test_layers_that_do_not_divide_go_to_the_later_ranks_but_the_last() -> None:
    sized = size_of({**QWEN3_8B, "num_hidden_layers": 10}, {"pipeline_parallel_size": 4})
    assert sized.attention_bytes_per_token_per_rank == 3 * 4096
    assert sized.attention_bytes_per_token == 10 * 4096


@pytest.mark.parametrize(("tensor", "pipeline"), [(3, 1), (5, 1), (1, 64)])
def test_parallelism_that_does_not_fit_is_refused(tensor: int, pipeline: int) -> None:
    with pytest.raises(RefusedError, match=r"spec\.engine\.\w+ParallelSize"):
        size_of(QWEN3_8B, {"tensor_parallel_size": tensor, "pipeline_parallel_size": pipeline})


def test_on_cuda_a_window_smaller_than_the_chunk_stores_only_the_window() -> None:
    config = {**QWEN3_8B, "model_type": "mistral", "sliding_window": 128}
    assert size_of(config, chunk_tokens=256).object_bytes == size_of(config, chunk_tokens=128).object_bytes
    whole = size_of(config, {"platform": "cpu"}, chunk_tokens=256)
    assert whole.object_bytes[0] == 2 * size_of(config, chunk_tokens=128).object_bytes[0]


def test_a_window_that_is_no_multiple_of_the_block_shrinks_the_chunk_below_it() -> None:
    config = {**QWEN3_8B, "model_type": "phi3", "sliding_window": 200}
    assert size_of(config).chunk_size_tokens == 192
    with pytest.raises(RefusedError, match="sliding window of 200"):
        size_of(config, chunk_tokens=256)


def test_a_capped_l1_says_how_long_a_context_may_be() -> None:
    sized = size_of(QWEN3_8B, l1_bytes=None, max_l1_bytes=8 * GIB)
    assert sized.l1_bytes == 8 * GIB < sized.l1_wanted_bytes
    assert 0 < sized.longest_cacheable_tokens < sized.max_context_tokens
    needed = sized.longest_cacheable_tokens * sized.attention_bytes_per_token
    assert needed * 100 // (100 - L1_WATERMARK_PERCENT) <= sized.l1_bytes


def test_an_l1_that_holds_no_chunk_is_refused_with_the_size_it_needs() -> None:
    with pytest.raises(RefusedError, match=r"spec\.cache\.l1Size 64Mi .* 198Mi at least"):
        size_of(QWEN3_8B, l1_bytes=64 * MIB)


def test_shared_memory_holds_the_segment_of_a_crashed_server_too() -> None:
    assert size_of(QWEN3_8B, {"tensor_parallel_size": 2}, l1_bytes=8 * GIB).shared_memory_bytes == 17 * GIB


@given(
    block=st.sampled_from([16, 32, 64, 128, 272]),
    bytes_per_token=st.integers(1, 1 << 24),
    context=st.integers(1, 10_000_000),
)
def test_any_chosen_chunk_is_a_multiple_of_the_block_and_not_absurd(
    block: int, bytes_per_token: int, context: int
) -> None:
    shape = overridden_shape({"model_type": "new", "max_position_embeddings": context}, bytes_per_token, "config.json")
    choice = chunking.choose_chunk(layout(shape, EngineLayout(block_size=block)), context)
    chunk = choice.tokens
    assert choice.reason.endswith(".")
    assert chunk % block == 0
    assert chunk >= min(64, block)
    if chunk > 512:
        assert chunk * bytes_per_token <= 64 * MIB or chunk * bytes_per_token < 2 * chunking.DEFAULT_SHARD_BYTES


@given(size_bytes=st.integers(1, 1 << 36))
def test_documents_stay_below_couchbases_limit(size_bytes: int) -> None:
    shard = chunking.choose_shard_bytes(size_bytes)
    assert shard <= 16 * MIB
    assert (chunking.documents_of(size_bytes, shard) - 1) * shard >= size_bytes
