"""A context that vLLM would refuse to start with is refused beforehand."""

from __future__ import annotations

from typing import Any

import pytest

from couchbase_lm_operator.core.model.context_length import refuse_longer
from couchbase_lm_operator.core.refusal import RefusedError


@pytest.mark.parametrize(
    ("config", "longest"),
    [
        ({}, 4096),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 16384),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2}}, 8192),
        # these say the stretched length in max_position_embeddings
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 4096),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, 4096),
        ({"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0}}}, 32768),
        ({"model_type": "gemma3_text", "rope_scaling": {"rope_type": "linear", "factor": 8.0}}, 4096),
        ({"text_config": {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}}, 8192),
        ({"model_max_length": 5000}, 5000),
        ({"rope_scaling": {"rope_type": "linear", "factor": None}}, 4096),
        ({"rope_scaling": {"type": [], "factor": 2}}, 8192),
    ],
)
def test_the_limit_is_vllms(config: dict[str, Any], longest: int) -> None:
    refuse_longer(longest, config, 4096, [])
    with pytest.raises(RefusedError, match=rf"maxModelLen {longest + 1} is more than the {longest} tokens"):
        refuse_longer(longest + 1, config, 4096, [])


def test_whoever_sets_vllms_variable_may_exceed_it() -> None:
    refuse_longer(5000, {}, 4096, [{"name": "VLLM_ALLOW_LONG_MAX_MODEL_LEN", "value": "1"}])
    for value in ("0", "", "false"):
        with pytest.raises(RefusedError):
            refuse_longer(5000, {}, 4096, [{"name": "VLLM_ALLOW_LONG_MAX_MODEL_LEN", "value": value}])
