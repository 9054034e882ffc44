"""Two layouts never share a fingerprint: what real runs found under one key is told apart."""

from __future__ import annotations

from dataclasses import fields
from itertools import combinations
from typing import Any

import pytest

from couchbase_lm_operator.core.engine.engine_layout import EngineLayout
from couchbase_lm_operator.core.model.model_shape import read_shape
from couchbase_lm_operator.core.sizing.kv_layout import layout
from couchbase_lm_operator.core.sizing.layout_fingerprint import layout_fingerprint
from tests.core.tiny_models import DENSE, LATENT, RECURRENT, SLIDING

VERSIONS = {"vllm": "0.32.0", "lmcache": "0.5.6"}
CUDA = EngineLayout()


def _fingerprint(
    content: dict[str, Any], chunk_tokens: int = 256, versions: dict[str, str] = VERSIONS, **engine: Any
) -> str:
    return layout_fingerprint(read_shape(content, "test"), EngineLayout(**engine), chunk_tokens, versions)


def _objects(content: dict[str, Any], chunk_tokens: int, **engine: Any) -> tuple[int, ...]:
    return layout(read_shape(content, "test"), EngineLayout(platform="cpu", **engine)).object_bytes(chunk_tokens)


def test_an_8_bit_cache_never_reads_the_bytes_of_a_16_bit_one() -> None:
    # real runs: 9 of 9 keys found, the first half of each object read, other words in the answer
    assert _objects(DENSE, 64, kv_cache_dtype="fp8") == (65_536,)
    assert _objects(DENSE, 64) == (131_072,)
    assert _fingerprint(DENSE, kv_cache_dtype="fp8") != _fingerprint(DENSE)


def test_a_32_bit_engine_has_keys_of_its_own() -> None:
    assert _objects(DENSE, 64, dtype="float32") == (262_144,)
    assert _fingerprint(DENSE, dtype="float32") != _fingerprint(DENSE)


def test_separated_groups_never_meet_objects_of_all_layers() -> None:
    # real runs: group 0 kept 196608 bytes where 163840 were due
    assert _objects(SLIDING, 64, block_size=32, separate_object_groups=False) == (196_608,)
    assert _objects(SLIDING, 64, block_size=32, separate_object_groups=True) == (163_840, 32_768)
    single, separated = (_fingerprint(SLIDING, separate_object_groups=each) for each in (False, True))
    assert single != separated


def test_a_layer_for_multi_token_prediction_changes_the_prefix() -> None:
    assert _objects(LATENT, 64) == (221_184,)
    assert _objects(LATENT, 64, speculative_method="mtp") == (294_912,)
    assert _fingerprint(LATENT, speculative_method="mtp") != _fingerprint(LATENT)


def test_ranks_of_latent_attention_share_their_objects() -> None:
    # real runs: the same kv_rank and the same bytes with one rank and with two
    assert _fingerprint(LATENT, tensor_parallel_size=2) == _fingerprint(LATENT)


@pytest.mark.parametrize("content", [DENSE, SLIDING, RECURRENT])
def test_the_tensor_parallel_size_is_in_the_key_and_not_in_the_prefix(content: dict[str, Any]) -> None:
    chunk = 8 * layout(read_shape(content, "test"), CUDA).block_tokens
    assert _fingerprint(content, chunk, tensor_parallel_size=2) == _fingerprint(content, chunk)


def test_a_stage_of_two_never_meets_a_rank_of_two() -> None:
    # both are rank 1 of a world of 2 in the key, with other layers and other heads
    assert _fingerprint(DENSE, pipeline_parallel_size=2) != _fingerprint(DENSE, tensor_parallel_size=2)


def test_what_was_left_open_counts_as_what_it_comes_to() -> None:
    assert _fingerprint(DENSE, dtype="bfloat16", kv_cache_dtype="auto") == _fingerprint(DENSE)
    assert _fingerprint(SLIDING, separate_object_groups=True) == _fingerprint(SLIDING)
    assert _fingerprint(RECURRENT, 2048, max_num_batched_tokens=8192) == _fingerprint(RECURRENT, 2048)
    # other words about the same layers
    other_words = {**DENSE, "max_position_embeddings": 4096, "architectures": ["Qwen3ForSequenceClassification"]}
    assert _fingerprint(other_words) == _fingerprint(DENSE)


def test_everything_that_an_engine_can_say_about_its_layout_tells_prefixes_apart() -> None:
    changes: dict[str, Any] = {
        "platform": "cpu",
        "pipeline_parallel_size": 2,
        "kv_cache_dtype": "fp8",
        "dtype": "float16",
        "block_size": 64,
        "attention_backend": "FLASHINFER",
        "separate_object_groups": True,
        "hybrid_kv_cache": False,
        "speculative_method": "ngram",
        "mamba_ssm_cache_dtype": "bfloat16",
        "mamba_cache_dtype": "float32",
        "is_whole_chunk_stored": True,
        "prefix_caching": False,
    }
    elsewhere = {"tensor_parallel_size", "decode_context_parallel_size", "num_speculative_layers"}
    assert changes.keys() | elsewhere | {"max_num_batched_tokens"} == {each.name for each in fields(EngineLayout)}
    found = {name: _fingerprint(DENSE, **{name: value}) for name, value in changes.items()}
    found |= {
        "nothing": _fingerprint(DENSE),
        "chunk": _fingerprint(DENSE, 512),
        "vllm": _fingerprint(DENSE, versions={**VERSIONS, "vllm": "0.33.0"}),
        "lmcache": _fingerprint(DENSE, versions={**VERSIONS, "lmcache": "0.5.7"}),
        "a layer more": _fingerprint({**DENSE, "num_hidden_layers": 5}),
        "a layer of another kind": _fingerprint(SLIDING),
        "contexts over ranks": _fingerprint(LATENT, decode_context_parallel_size=2, tensor_parallel_size=2),
        "latent": _fingerprint(LATENT),
        "two layers more": _fingerprint(LATENT, speculative_method="mtp", num_speculative_layers=2),
        "one layer more": _fingerprint(LATENT, speculative_method="mtp", num_speculative_layers=1),
    }
    for (one, first), (other, second) in combinations(found.items(), 2):
        assert first != second, f"{one} and {other}"
