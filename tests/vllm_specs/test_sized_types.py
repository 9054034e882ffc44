"""vLLM and LMCache are the judges of every number that is worked out from a config.json.

For each model type that is sized, the engine's own classes are built from the library's default
configuration and from variants of it; bytes, blocks, groups and refusals must be the same as ours.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from couchbase_lm_operator.core.model.model_families import FAMILIES, WRAPPERS
from couchbase_lm_operator.core.refusal import RefusedError
from couchbase_lm_operator.core.sizing.kv_layout import KvLayout
from tests.vllm_specs.cases import Case
from tests.vllm_specs.judging import differences, predict
from tests.vllm_specs.model_types import CHANGES
from tests.vllm_specs.running import answers
from tests.vllm_specs.variants import VARIANTS

# One process builds all models, in about a minute and a half on two cores.
pytestmark = pytest.mark.timeout(900)

Answers = dict[str, dict[str, Any]]

WITHOUT_CLASS_OF_THEIR_OWN = {
    "qwen2_5_vl_text": "qwen2_5_vl",
    "qwen3_vl_moe_text": "qwen3_vl_moe",
    "qwen3_vl_text": "qwen3_vl",
}
"""Decoders that exist only inside a model that also sees: judged by that one."""
CANNOT_BE_BUILT = {
    "gemma3n": "its vision tower needs the timm library",
    "kimi_k25": "the library's defaults are not a configuration that vLLM takes",
}
"""What we size and the installed vLLM cannot build from defaults; the sizes inside are judged as text types."""
IGNORES_FP8 = {"falcon"}
"""vLLM's class does not tell its attention layers the type of the cache."""

ENGINES: tuple[dict[str, Any], ...] = ({}, {"tensor_parallel_size": 2}, {"kv_cache_dtype": "fp8"})
JUDGED = sorted((FAMILIES.keys() | WRAPPERS.keys()) - WITHOUT_CLASS_OF_THEIR_OWN.keys())
DEFAULTS = tuple(Case(model_type, engine=engine) for model_type in JUDGED for engine in ENGINES)
CASES = (*DEFAULTS, *VARIANTS)
OWN_LAYERS = (
    Case("gemma4_text", {"per_layer_config": {"05": {"head_dim": 128}}}),
    Case("gemma4_text", {"per_layer_config": {"05": {"num_key_value_heads": 2}}}),
    Case("llama", {"num_hidden_layers": 4, "per_layer_config": {"1": {"num_key_value_heads": 4}}}),
)
"""Layers that differ in ways that no field for all of them tells."""


@pytest.fixture(scope="module")
def judged() -> Answers:
    return answers((*CASES, *OWN_LAYERS, *_others()))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_predicted_is_what_the_engine_registers(case: Case, judged: Answers) -> None:
    answer = judged[case.name]
    if case.model_type in CANNOT_BE_BUILT:
        assert "error" in answer, f"{case.model_type} can be built now: take it off the list"
        return
    ours = predict(answer["config"], case.engine)
    if "error" in answer:
        assert case.engine, f"vLLM cannot build {case.name}: {answer['error']} at {answer['at']}"
        assert isinstance(ours, RefusedError), f"we give a number where vLLM says {answer['error']}"
        return
    assert not isinstance(ours, RefusedError), f"refused: {ours.verdict.message}"
    assert differences(ours, answer) == []


@pytest.mark.parametrize("model_type", sorted({*FAMILIES, *WITHOUT_CLASS_OF_THEIR_OWN.values()} & set(JUDGED)))
def test_fields_that_a_file_leaves_out_never_make_another_number(model_type: str, judged: Answers) -> None:
    """Valid because what is left out of a default configuration is filled with the very same value."""
    answer = judged[Case(model_type).name]
    wrong = []
    for left_out in _left_out(answer["config"], CHANGES.get(model_type, {})):
        ours = predict(_without(answer["config"], left_out), {})
        if isinstance(ours, KvLayout) and (found := differences(ours, answer)):
            wrong.append(f"without {', '.join(sorted(left_out))}: {found[0]}")
    assert wrong == []


def _left_out(config: dict[str, Any], changes: dict[str, Any]) -> Iterator[set[str]]:
    """Yield each field alone, and many of them together; never one that is not at the library's default."""
    text = config.get("text_config") or config
    kept = (
        {"model_type", "architectures", "dtype", "text_config"} | changes.keys() | changes.get("text_config", {}).keys()
    )
    fields = sorted(text.keys() - kept)
    yield from ({name} for name in fields)
    choose = random.Random(config["model_type"])
    yield from (set(choose.sample(fields, choose.randint(2, len(fields)))) for _ in range(50))


def _without(config: dict[str, Any], names: set[str]) -> dict[str, Any]:
    text = config.get("text_config")
    if text:
        return {**config, "text_config": {name: value for name, value in text.items() if name not in names}}
    return {name: value for name, value in config.items() if name not in names}


@pytest.mark.parametrize("case", OWN_LAYERS, ids=lambda case: case.name)
def test_layers_of_their_own_are_refused(case: Case, judged: Answers) -> None:
    assert isinstance(predict(judged[case.name]["config"], {}), RefusedError)


def test_no_other_type_that_the_library_knows_gets_a_number(judged: Answers) -> None:
    """What is refused needs not be built: it gets no number, whatever vLLM makes of it."""
    others = [case for case in _others() if "config" in judged[case.name]]
    assert len(others) > 300
    numbers = [case.name for case in others if isinstance(predict(judged[case.name]["config"], {}), KvLayout)]
    assert numbers == []


def _others() -> list[Case]:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    return [Case(name, is_built=False) for name in sorted(CONFIG_MAPPING_NAMES.keys() - {*FAMILIES, *WRAPPERS})]


def test_every_sized_type_is_judged() -> None:
    assert sorted({case.model_type for case in DEFAULTS}) == JUDGED
    assert set(WITHOUT_CLASS_OF_THEIR_OWN.values()) <= set(JUDGED) - set(CANNOT_BE_BUILT)
    assert set(CANNOT_BE_BUILT) <= set(WRAPPERS)
    assert len(FAMILIES) >= 25
