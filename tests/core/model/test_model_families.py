"""What each layer of published models keeps, family by family, and which shapes are refused."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.engine.element_types import indexer_bytes, latent_bytes, state_bytes, token_bytes
from couchbase_lm_operator.core.engine.engine_layout import EngineLayout
from couchbase_lm_operator.core.model.layer_cache import Heads, Indexer, Latent, LayerCache, State
from couchbase_lm_operator.core.model.model_families import FAMILIES
from couchbase_lm_operator.core.model.model_shape import read_shape
from couchbase_lm_operator.core.refusal import RefusedError
from couchbase_lm_operator.core.sizing.kv_layout import layout
from couchbase_lm_operator.core.sizing.sizing import SizingInputs, size
from tests.core.model_configs import VALID, latent, plain
from tests.core.sizing.test_sizing_worked import config_of
from tests.core.sizing_truth import PUBLIC_MODELS, REAL_RUNS


def bytes_of(cache: LayerCache) -> tuple[str, int]:
    """Return a cache as a row of a table: its kind, and bytes of a token, or of a snapshot."""
    if isinstance(cache, State):
        return "state", state_bytes(cache, "bfloat16", 1, None, None)
    told = token_bytes(cache, "bfloat16", 1, None, has_scales=True)
    if isinstance(cache, Heads) and cache.window_tokens is not None:
        return f"window {cache.window_tokens}", told
    return {Heads: "full", Latent: "latent", Indexer: "indexer"}[type(cache)], told


LLAMA4 = plain("llama4_text", 48, 40, 8, 128, no_rope_layers=[1, 1, 1, 0] * 12, attention_chunk_size=8192)
QWEN35 = next(row.config for row in PUBLIC_MODELS if row.model == "Qwen/Qwen3.5-27B")
NEMOTRON_3_NANO = plain(
    "nemotron_h",
    52,
    32,
    2,
    128,
    hybrid_override_pattern="MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    mamba_num_heads=64,
    mamba_head_dim=64,
    n_groups=8,
    ssm_state_size=128,
    conv_kernel=4,
    mamba_ssm_cache_dtype="float32",
    mamba_hidden_act="silu",
    mamba_proj_bias=False,
)

PUBLISHED: dict[str, tuple[dict[str, Any], dict[tuple[str, int], int]]] = {
    "DeepSeek-V2-Lite": (latent("deepseek_v2", 27, q_lora_rank=None), {("latent", 1152): 27}),
    "Falcon-7B": (config_of("falcon-7b"), {("full", 256): 32}),
    "GLM-4.5": (plain("glm4_moe", 92, 96, 8, 128, num_nextn_predict_layers=1), {("full", 4096): 92}),
    "GLM-4.7-Flash": (latent("glm4_moe_lite", 47, q_lora_rank=768, v_head_dim=256), {("latent", 1152): 47}),
    "Gemma-3n-E4B": (
        {"model_type": "gemma3n_text", "hidden_size": 2048, "num_hidden_layers": 35, "torch_dtype": "bfloat16"},
        {("full", 2048): 4, ("window 512", 2048): 16},
    ),
    "Gemma-4-26B-A4B": (
        plain(
            "gemma4_text",
            30,
            16,
            8,
            256,
            sliding_window=1024,
            global_head_dim=512,
            num_global_key_value_heads=2,
            attention_k_eq_v=True,
        ),
        {("full", 4096): 5, ("window 1024", 8192): 25},
    ),
    "Gemma-4-31B": (
        plain(
            "gemma4_text",
            60,
            32,
            16,
            256,
            sliding_window=1024,
            global_head_dim=512,
            num_global_key_value_heads=4,
            attention_k_eq_v=True,
        ),
        {("full", 8192): 10, ("window 1024", 16_384): 50},
    ),
    "Llama-4-Scout": (LLAMA4, {("full", 4096): 48}),
    "MiMo-V2-Flash": (
        plain(
            "mimo_v2_flash",
            48,
            64,
            4,
            192,
            v_head_dim=128,
            swa_num_key_value_heads=8,
            swa_head_dim=192,
            swa_v_head_dim=128,
            sliding_window=128,
            attention_chunk_size=128,
            hybrid_layer_pattern=[0, *[1] * 4, *([0, *[1] * 5] * 7), 0],
        ),
        {("full", 2560): 9, ("window 128", 5120): 39},
    ),
    "Mistral-7B-v0.1": (plain("mistral", 32, 32, 8, 128, sliding_window=4096), {("window 4096", 4096): 32}),
    "MiniMax-M2.5": (plain("minimax_m2", 62, 48, 8, 128, attn_type_list=[1] * 62), {("full", 4096): 62}),
    "Nemotron-3-Nano": (NEMOTRON_3_NANO, {("full", 1024): 6, ("state", 2_134_016): 23}),
    "Qwen3-VL-8B": (
        {
            "model_type": "qwen3_vl",
            "text_config": plain("qwen3_vl_text", 36, 32, 8, 128),
            "vision_config": {"hidden_size": 1152},
        },
        {("full", 4096): 36},
    ),
    "Qwen3.5-35B-A3B": (
        plain("qwen3_5_moe_text", 40, 16, 2, 256, mamba_ssm_dtype="float32"),
        {("full", 2048): 10, ("state", 2_146_304): 30},
    ),
    "LFM2-1.2B": (
        plain("lfm2", 16, 32, 8, 64, full_attn_idxs=[2, 5, 8, 10, 12, 14], conv_L_cache=3, conv_dim=2048),
        {("full", 2048): 6, ("state", 8192): 10},
    ),
    "Command-R7B": (
        plain("cohere2", 32, 32, 8, 128, sliding_window=4096, sliding_window_pattern=4),
        {("full", 4096): 8, ("window 4097", 4096): 24},
    ),
}

JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 300),
    st.sampled_from([1 << 64, -(1 << 64), 10**300]),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.one_of(st.integers(-1, 9), st.text(max_size=4), st.none()), max_size=5),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)


@pytest.mark.parametrize("model", PUBLISHED)
def test_layers_of_published_models(model: str) -> None:
    config, expected = PUBLISHED[model]
    shape = read_shape(config, model)
    assert Counter(bytes_of(cache) for layer in shape.layers for cache in layer) == expected


def test_falcon_keeps_its_own_type_whatever_the_flag_says() -> None:
    shape = read_shape(VALID["falcon"], "c")
    assert layout(shape, EngineLayout(kv_cache_dtype="fp8")).object_bytes(64) == layout(
        shape, EngineLayout()
    ).object_bytes(64)


def test_small_indexers_keep_no_scale() -> None:
    assert (indexer_bytes(Indexer(64)), indexer_bytes(Indexer(128))) == (64, 132)


def test_only_qwen_3_5_reads_a_type_of_its_states() -> None:
    next_ = {**VALID["qwen3_next"], "mamba_ssm_dtype": "float32"}
    assert read_shape(next_, "c").layers == read_shape(VALID["qwen3_next"], "c").layers
    newer = {**VALID["qwen3_5_text"], "mamba_ssm_dtype": "float32"}
    assert read_shape(newer, "c").layers != read_shape(VALID["qwen3_5_text"], "c").layers


def test_longcat_keeps_two_latent_vectors_per_layer() -> None:
    config = {**latent("longcat_flash", 4, num_layers=4), "num_hidden_layers": None}
    assert layout(read_shape(config, "c"), EngineLayout()).attention_bytes_per_token == 9216


@pytest.mark.parametrize(
    ("engine", "object_bytes"),
    [
        ({"kv_cache_dtype": "fp8"}, 65_536),
        ({"dtype": "float32"}, 262_144),
        ({"kv_cache_dtype": "int8_per_token_head"}, 65_536),
    ],
)
def test_element_types_that_a_real_engine_stored(engine: dict[str, Any], object_bytes: int) -> None:
    flags = EngineLayout(platform="cpu", block_size=32, **engine)
    assert layout(read_shape(REAL_RUNS[0].config, "c"), flags).object_bytes(64) == (object_bytes,)


def test_a_layer_for_multi_token_prediction_is_kept_only_when_the_engine_uses_it() -> None:
    config = {**latent("deepseek_v3", 3), "num_nextn_predict_layers": 1}
    shape = read_shape(config, "c")
    assert layout(shape, EngineLayout(platform="cpu")).object_bytes(64) == (221_184,)
    with_mtp = layout(shape, EngineLayout(platform="cpu", speculative_method="mtp"))
    assert with_mtp.object_bytes(64) == (294_912,)
    assert layout(shape, EngineLayout(speculative_method="ngram")).object_bytes(64) == (221_184,)


def test_layers_for_multi_token_prediction_are_on_the_last_stage() -> None:
    shape = read_shape({**latent("deepseek_v3", 8), "num_nextn_predict_layers": 1}, "c")
    stages = layout(shape, EngineLayout(pipeline_parallel_size=4, speculative_method="mtp")).stages
    assert [group.layers for stage in stages for group in stage] == [2, 2, 2, 3]


@pytest.mark.parametrize(
    ("changes", "indexers"),
    [
        ({}, 78),
        ({"index_topk_freq": 4, "index_skip_topk_offset": 3}, 21),
        ({"index_topk_pattern": "FSSS" + "F" * 74}, 75),
    ],
)
def test_indexers_are_on_the_layers_that_the_pattern_names(changes: dict[str, Any], indexers: int) -> None:
    shape = read_shape({**latent("glm_moe_dsa", 78, index_topk=2048, index_head_dim=128), **changes}, "c")
    found = [cache for layer in shape.layers for cache in layer if isinstance(cache, Indexer)]
    assert len(found) == indexers
    assert indexer_bytes(found[0]) == 132


@pytest.mark.parametrize(
    ("kv_dtype", "backend", "size_bytes"),
    [
        ("bfloat16", None, 1152),
        ("fp8", "FLASHINFER_MLA_SPARSE", 576),
        ("fp8", None, 656),
        ("fp8", "FLASHMLA_SPARSE", 656),
        ("nvfp4_ds_mla", None, 352),
    ],
)
def test_sparse_latent_vectors_depend_on_the_backend(kv_dtype: str, backend: str | None, size_bytes: int) -> None:
    assert latent_bytes(Latent(576, is_sparse=True), kv_dtype, backend) == size_bytes


def test_a_stage_that_would_keep_nothing_is_refused() -> None:
    config = {"model_type": "gemma3n_text", "hidden_size": 2048, "num_hidden_layers": 30, "torch_dtype": "bfloat16"}
    shape = read_shape(config, "c")
    assert layout(shape, EngineLayout()).attention_bytes_per_token == 15 * 2048
    with pytest.raises(RefusedError, match="pipelineParallelSize 2"):
        layout(shape, EngineLayout(pipeline_parallel_size=2))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "llama with latent attention": ({**plain("llama", 4, 4, 4, 64), "kv_lora_rank": 512}, "kv_lora_rank"),
    "llama with states": ({**plain("llama", 4, 4, 4, 64), "mamba_d_state": 16}, "mamba_d_state"),
    "qwen with an indexer": ({**plain("qwen3", 4, 4, 4, 64), "index_topk": 2048}, "index_topk"),
    "deepseek v3 with an indexer": (latent("deepseek_v3", 4, index_topk=2048), "index_topk"),
    "gemma 3 that looks both ways": (
        plain("gemma3_text", 6, 4, 2, 64, use_bidirectional_attention=True),
        "use_bidirectional_attention",
    ),
    "gpt-oss in another order": (
        plain("gpt_oss", 2, 4, 2, 64, layer_types=["full_attention", "sliding_attention"]),
        "layer_types",
    ),
    "minimax with linear layers": (plain("minimax_m2", 2, 4, 2, 64, attn_type_list=[0, 1]), "attn_type_list"),
    "llama 4 that contradicts itself": (
        {**LLAMA4, "layer_types": ["full_attention"] * 48},
        "no_rope_layers",
    ),
    "qwen 3.5 with mamba layers": ({**QWEN35, "mamba_d_state": 16}, "mamba_d_state"),
    "qwen 3.5 with experts as layers": ({**QWEN35, "layer_types": ["moe", "full_attention"] * 32}, "'moe'"),
    "qwen 3.5 without attention": ({**QWEN35, "layer_types": ["linear_attention"] * 64}, "one kind"),
    "nemotron with a new letter": ({**NEMOTRON_3_NANO, "hybrid_override_pattern": "X" * 52}, "'X'"),
    "nemotron with two head sizes": ({**NEMOTRON_3_NANO, "attention_head_dim": 64}, "attention_head_dim"),
    "lfm2 with wider convolutions": (
        plain("lfm2", 4, 4, 2, 64, full_attn_idxs=[1], conv_dim=512),
        "conv_dim",
    ),
    "an encoder around a decoder": (
        {"model_type": "mllama", "text_config": plain("llama", 4, 4, 4, 64)},
        "model_type 'mllama' around a 'llama'",
    ),
    "another decoder in a known model": (
        {"model_type": "gemma3", "text_config": plain("llama", 4, 4, 4, 64)},
        "model_type 'gemma3' around a 'llama'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_known_type_in_a_shape_that_was_never_seen_is_refused_by_field(case: str) -> None:
    config, named = REFUSED[case]
    with pytest.raises(RefusedError) as caught:
        read_shape(config, "config.json")
    assert caught.value.verdict.reason == Reason.MODEL_NOT_SUPPORTED
    assert named in caught.value.verdict.message


@pytest.mark.parametrize("model_type", sorted(FAMILIES))
@pytest.mark.parametrize(
    "foreign", [{"hybrid_new_pattern": "M*"}, {"state_size": 16}, {"new_lora_rank": 64}, {"is_encoder_decoder": True}]
)
def test_no_type_is_sized_with_fields_that_it_should_not_have(model_type: str, foreign: dict[str, Any]) -> None:
    read_shape(VALID[model_type], "config.json")
    with pytest.raises(RefusedError) as caught:
        read_shape({**VALID[model_type], **foreign}, "config.json")
    assert next(iter(foreign)) in caught.value.verdict.message


@pytest.mark.parametrize("model_type", sorted(FAMILIES))
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_value_in_any_field_is_read_or_refused_with_the_place(model_type: str, data: st.DataObject) -> None:
    valid = VALID[model_type]
    broken = data.draw(
        st.dictionaries(st.sampled_from([*valid, "layer_types", "quantization_config"]), JUNK, max_size=3)
    )
    config = {**valid, **broken}
    # any other error fails
    with contextlib.suppress(RefusedError):
        shape = read_shape(config, "config.json")
        size(shape, SizingInputs(EngineLayout(tensor_parallel_size=data.draw(st.sampled_from([1, 2, 3])))))
