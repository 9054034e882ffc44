"""Reading config.json: what is known, and what is refused in words that name the field."""

from __future__ import annotations

from typing import Any

import pytest

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.model.layer_cache import Heads
from couchbase_lm_operator.core.model.model_families import FAMILIES
from couchbase_lm_operator.core.model.model_shape import overridden_shape, read_shape
from couchbase_lm_operator.core.refusal import RefusedError
from tests.core.planning import QWEN3_8B

WHERE = "key config.json of ConfigMap m"


def refusal(config: dict[str, Any]) -> tuple[str, str]:
    with pytest.raises(RefusedError) as caught:
        read_shape(config, WHERE)
    verdict = caught.value.verdict
    assert verdict.message.startswith(WHERE)
    return verdict.reason, verdict.message


def caches(config: dict[str, Any]) -> list[Heads]:
    found = [cache for layer in read_shape(config, WHERE).layers for cache in layer]
    assert all(isinstance(cache, Heads) for cache in found)
    return [cache for cache in found if isinstance(cache, Heads)]


@pytest.mark.parametrize(
    "model_type",
    [
        "mamba2",
        "minicpm3",
        "falcon_h1",
        "zamba2",
        "minimax",
        "deepseek_v4",
        "nemotron-nas",
        "t5",
    ],
)
def test_types_that_are_not_verified_are_refused_by_name(model_type: str) -> None:
    reason, message = refusal({**QWEN3_8B, "model_type": model_type})
    assert reason == Reason.MODEL_NOT_SUPPORTED
    assert repr(model_type) in message
    assert "spec.model.override" in message
    assert len(message) < 400


def test_a_mistyped_type_names_what_was_probably_meant() -> None:
    assert "qwen3_moe" in refusal({**QWEN3_8B, "model_type": "qwen3-moe"})[1]
    assert "similar" not in refusal({**QWEN3_8B, "model_type": "t5"})[1]


@pytest.mark.parametrize("field", ["kv_lora_rank", "mamba_d_state", "state_size", "linear_num_key_heads"])
def test_a_known_type_with_fields_of_another_family_is_refused(field: str) -> None:
    reason, message = refusal({**QWEN3_8B, field: 64})
    assert reason == Reason.MODEL_NOT_SUPPORTED
    assert field in message


# its layers are counted by another field
@pytest.mark.parametrize("model_type", sorted(FAMILIES.keys() - {"longcat_flash"}))
@pytest.mark.parametrize("field", ["num_hidden_layers", "num_attention_heads", "max_position_embeddings"])
@pytest.mark.parametrize("value", [None, 0, -1, 1 << 60, "32", 32.0, True, [32]])
def test_missing_and_absurd_values_are_refused_by_field(model_type: str, field: str, value: object) -> None:
    reason, message = refusal({**QWEN3_8B, "model_type": model_type, field: value})
    assert reason == Reason.MODEL_CONFIG_INVALID
    assert field in message


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"num_key_value_heads": 64}, "num_key_value_heads"),
        ({"num_key_value_heads": 5}, "num_key_value_heads"),
        ({"head_dim": 0}, "head_dim"),
        ({"head_dim": None, "hidden_size": 4097}, "hidden_size"),
        ({"head_dim": None, "hidden_size": None}, "hidden_size"),
        ({"torch_dtype": "int4"}, "torch_dtype"),
        ({"torch_dtype": 16}, "torch_dtype"),
        ({"model_type": None}, "model_type"),
        ({"model_type": ["qwen3"]}, "model_type"),
        ({"model_type": "q" * 65}, "model_type"),
    ],
)
def test_other_broken_fields_are_named(change: dict[str, Any], named: str) -> None:
    reason, message = refusal({**QWEN3_8B, **change})
    assert reason == Reason.MODEL_CONFIG_INVALID
    assert named in message


def test_a_long_value_is_not_repeated_in_full() -> None:
    _, message = refusal({**QWEN3_8B, "num_hidden_layers": "x" * 10_000})
    assert len(message) < 300


@pytest.mark.parametrize(
    ("config", "kv_heads"),
    [
        ({"model_type": "llama", "num_key_value_heads": None}, 32),
        ({"model_type": "falcon", "multi_query": True, "num_kv_heads": 32}, 1),
        ({"model_type": "falcon", "multi_query": True, "new_decoder_architecture": True, "num_kv_heads": 8}, 8),
        ({"model_type": "qwen3"}, 8),
    ],
)
def test_kv_heads_are_read_as_vllm_does(config: dict[str, Any], kv_heads: int) -> None:
    assert {cache.kv_heads for cache in caches({**QWEN3_8B, **config})} == {kv_heads}


@pytest.mark.parametrize(
    ("config", "window"),
    [
        ({"model_type": "mistral", "sliding_window": 4096}, 4096),
        ({"model_type": "mistral", "sliding_window": None}, None),
        ({"model_type": "qwen2", "sliding_window": 131072, "use_sliding_window": False}, None),
        ({"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 36}, None),
        ({"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 0}, 4096),
        ({"layer_types": ["full_attention"] * 36, "sliding_window": 4096}, None),
        ({"model_type": "phi3", "layer_types": ["sliding_attention"] * 36, "sliding_window": 4096}, 4096),
        ({"model_type": "phimoe", "sliding_window": 0}, None),
        ({"model_type": "mistral"}, 4096),
    ],
)
def test_sliding_windows_count_only_where_all_layers_slide(config: dict[str, Any], window: int | None) -> None:
    assert {cache.window_tokens for cache in caches({**QWEN3_8B, **config})} == {window}


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 18}, "max_window_layers 18"),
        ({"layer_types": ["linear_attention"] * 36}, "linear_attention"),
        ({"model_type": "llama", "layer_types": ["sliding_attention"] * 36}, "sliding_attention"),
        ({"model_type": "llama", "sliding_window": 4096}, "sliding_window"),
        ({"layer_types": ["sliding_attention"] * 36, "sliding_window": 4096}, "layer_types"),
    ],
)
def test_layers_that_a_type_never_had_are_refused(config: dict[str, Any], named: str) -> None:
    reason, message = refusal({**QWEN3_8B, **config})
    assert reason == Reason.MODEL_NOT_SUPPORTED
    assert named in message


@pytest.mark.parametrize("kinds", [["full_attention"], "full_attention", [1] * 36])
def test_a_list_that_does_not_name_every_layer_is_refused(kinds: object) -> None:
    reason, message = refusal({**QWEN3_8B, "layer_types": kinds})
    assert reason == Reason.MODEL_CONFIG_INVALID
    assert "layer_types" in message


@pytest.mark.parametrize(
    ("quantization", "kv_dtype"),
    [
        (None, None),
        ({"quant_method": "awq"}, None),
        ({"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8"),
        ({"kv_cache_quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": "FP8"}}, "fp8"),
        ({"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": None}}, None),
    ],
)
def test_checkpoints_say_whether_their_cache_is_8_bit(quantization: object, kv_dtype: str | None) -> None:
    assert read_shape({**QWEN3_8B, "quantization_config": quantization}, WHERE).kv_dtype == kv_dtype


def test_a_decoder_inside_another_model_says_it_itself() -> None:
    text = {**QWEN3_8B, "model_type": "qwen3_vl_text", "quantization_config": {"kv_cache_quant_algo": "fp8"}}
    assert read_shape({"model_type": "qwen3_vl", "text_config": text}, WHERE).kv_dtype == "fp8"


def test_other_quantised_caches_are_refused() -> None:
    reason, message = refusal({**QWEN3_8B, "quantization_config": {"kv_cache_quant_algo": "NVFP4"}})
    assert reason == Reason.MODEL_NOT_SUPPORTED
    assert "quantization_config" in message


def test_with_an_override_any_type_is_taken_and_only_the_length_is_read() -> None:
    shape = overridden_shape(
        {"model_type": "deepseek_v3", "text_config": {"max_position_embeddings": 1000}}, 70_272, WHERE
    )
    assert (shape.max_model_len, shape.override_bytes_per_token) == (1000, 70_272)
