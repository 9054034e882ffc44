"""Classes that vLLM would build instead of the one that a model type stands for."""

from __future__ import annotations

from typing import Any

import pytest

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.model.architectures import another_class
from couchbase_lm_operator.core.model.model_shape import read_shape
from couchbase_lm_operator.core.refusal import RefusedError
from tests.core.tiny_models import DENSE


@pytest.mark.parametrize(
    ("model_type", "architecture"),
    [
        ("llama", "LlamaForCausalLM"),
        ("llama", "LLaMAForCausalLM"),
        ("gpt2", "GPT2LMHeadModel"),
        ("gpt_oss", "GptOssForCausalLM"),
        ("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM"),
        ("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration"),
        ("qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration"),
        ("granitemoehybrid", "GraniteMoeHybridForCausalLM"),
        ("phimoe", "PhiMoEForCausalLM"),
        ("kimi_k2", "DeepseekV3ForCausalLM"),
        ("kimi_k25", "KimiK25ForConditionalGeneration"),
        ("mimo_v2_flash", "MiMoV2FlashForCausalLM"),
        ("nemotron_h", "NemotronHForCausalLM"),
    ],
)
def test_the_class_of_a_type_is_known_by_its_name(model_type: str, architecture: str) -> None:
    assert another_class({"model_type": model_type, "architectures": [architecture]}) is None


@pytest.mark.parametrize(
    ("model_type", "architecture"),
    [
        ("llama", "IQuestLoopCoderForCausalLM"),
        ("nemotron_h", "NemotronHPuzzleForCausalLM"),
        ("longcat_flash", "LongcatFlashNgramForCausalLM"),
        ("deepseek_v3", "DeepseekV32ForCausalLM"),
        ("qwen3", "Qwen3NextForCausalLM"),
    ],
)
def test_a_class_of_another_kind_is_not(model_type: str, architecture: str) -> None:
    assert another_class({"model_type": model_type, "architectures": [architecture]}) == architecture


@pytest.mark.parametrize("architectures", [None, [], "Qwen3ForCausalLM", 7])
def test_a_file_may_leave_it_out(architectures: Any) -> None:
    assert read_shape({**DENSE, "architectures": architectures}, "config.json").layers


def test_the_refusal_names_the_class() -> None:
    with pytest.raises(RefusedError) as caught:
        read_shape({**DENSE, "architectures": ["LlamaForCausalLM"]}, "config.json")
    assert caught.value.verdict.reason == Reason.MODEL_NOT_SUPPORTED
    assert "architectures has 'LlamaForCausalLM'" in caught.value.verdict.message
