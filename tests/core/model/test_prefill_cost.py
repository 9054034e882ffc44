"""What a prompt costs to compute: against published counts of active parameters, and by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from couchbase_lm_operator.core.model.model_shape import overridden_shape, read_shape
from couchbase_lm_operator.core.model.prefill_cost import Pairs, PrefillCost, prefill_cost
from e2e.public_models.models import PUBLIC_MODELS

CONFIGS = {model.name: model.config for model in PUBLIC_MODELS}
# Billions of parameters that a token passes, as published, less what of embeddings and output head (vocabulary x
# hidden size each) is counted in.
ACTIVE_BILLIONS = {
    "Qwen3-0.6B": 0.44,
    "Qwen3-8B": 6.95,
    "Qwen3-32B": 31.2,
    "Qwen3-30B-A3B": 3.3 - 0.62,
    "Qwen3-235B-A22B": 22 - 1.24,
    "Qwen2.5-7B": 6.53,
    "Qwen2.5-72B": 70.0,
    "Llama-3.1-8B": 8.03 - 1.05,
    "Llama-3.1-70B": 70.6 - 2.1,
    "Llama-3.1-405B": 405.9 - 4.2,
    "Llama-4-Scout": 17 - 2.07,
    "Mixtral-8x7B": 12.9 - 0.26,
    "GPT-OSS-20B": 3.61 - 0.58,
    "GPT-OSS-120B": 5.13 - 0.58,
    "DeepSeek-V2-Lite": 2.4 - 0.21,
    "DeepSeek-V3 / R1": 37.5 - 1.85,
    "Kimi-K2": 32.6 - 2.35,
    "GLM-4.5 / 4.6": 32.0 - 1.55,
    "MiniMax-M2.5": 10.0,
    "Gemma-2-9B": 8.32,
    "Gemma-3-27B": 25.6,
    "Phi-4": 14.66 - 1.03,
    "StarCoder2-7B": 7.17 - 0.23,
    "Falcon-40B": 41.3 - 0.53,
    "Qwen3-Next-80B-A3B": 3.9 - 0.62,
    "Qwen3.5-27B": 27.0 - 2.54,
    "Qwen3.5-35B-A3B": 3.4 - 1.02,
    "Qwen3.5-397B-A17B": 17.0 - 2.03,
    "Kimi-Linear-48B": 3.0 - 0.38,
    "Nemotron-H-56B": 56.3 - 2.15,
    "Nemotron-3-Nano-30B": 3.5 - 0.7,
    "Jamba-v0.1": 12.0 - 0.54,
}


def cost_of(config: dict[str, Any]) -> PrefillCost:
    found = prefill_cost(config, read_shape(config, "config.json"))
    assert found is not None
    return found


@pytest.mark.parametrize("name", ACTIVE_BILLIONS)
def test_weights_are_the_published_active_parameters(name: str) -> None:
    # names and cards round to one digit after the point, and count a little that is not a matrix
    assert cost_of(CONFIGS[name]).weights / 1e9 == pytest.approx(ACTIVE_BILLIONS[name], rel=0.08)


def test_every_public_model_has_a_cost() -> None:
    for config in CONFIGS.values():
        assert cost_of(config).flops(10_000) > 0


def test_attention_by_hand() -> None:
    cost = cost_of(CONFIGS["Qwen3-8B"])
    # 36 layers of 32 heads with 128 + 128 elements, a multiplication and an addition each
    assert cost.pairs == (Pairs(2 * 36 * 32 * 256),)
    assert cost.flops(3) == 3 * 2 * cost.weights + 6 * 2 * 36 * 32 * 256


def test_windows_sparse_attention_and_states_bound_the_pairs() -> None:
    spans = {pairs.span_tokens for pairs in cost_of(CONFIGS["GPT-OSS-20B"]).pairs}
    assert spans == {None, 128}
    assert {pairs.span_tokens for pairs in cost_of(CONFIGS["DeepSeek-V3.2"]).pairs} == {None, 2048}
    scout = cost_of(CONFIGS["Llama-4-Scout"]).pairs
    assert (8192, True) in {(pairs.span_tokens, pairs.is_stretch) for pairs in scout}
    hybrid = cost_of(CONFIGS["Qwen3.5-27B"])
    assert hybrid.state_elements == 48 * 48 * 128 * 128
    assert hybrid.pairs == (Pairs(2 * 16 * 24 * 512),)


def test_what_is_not_told_gives_no_number() -> None:
    config = CONFIGS["Qwen3-8B"]
    shape = read_shape(config, "config.json")
    for field in ("intermediate_size", "hidden_size"):
        assert prefill_cost({name: value for name, value in config.items() if name != field}, shape) is None
        for value in (0, -1, "12288", 1.5, True, [], 10**30):
            assert prefill_cost({**config, field: value}, shape) is None
    assert prefill_cost(config, overridden_shape(config, 1000, "config.json")) is None


@given(st.integers(1, 3000), st.integers(1, 200), st.booleans())
def test_pairs_are_counted_as_one_by_one(tokens: int, span: int, is_stretch: bool) -> None:
    seen = (at % span + 1 if is_stretch else min(at + 1, span) for at in range(tokens))
    assert Pairs(1, span, is_stretch).count(tokens) == sum(seen)
    assert Pairs(1).count(tokens) == tokens * (tokens + 1) // 2


def test_fields_of_the_published_files_that_tell_nothing_about_caches_do_no_harm() -> None:
    glm = CONFIGS["GLM-5.2"]
    published = {
        **glm,
        "mlp_layer_types": ["dense"] * 3 + ["sparse"] * 75,
        "indexer_types": ["full" if at < 3 or at % 4 == 2 else "shared" for at in range(78)],
    }
    assert cost_of(published) == cost_of(glm)
    kimi = {name: value for name, value in CONFIGS["Kimi-Linear-48B"].items() if name != "max_position_embeddings"}
    assert read_shape({**kimi, "model_max_length": 1 << 20}, "config.json").max_model_len == 1 << 20
