"""The longest context that vLLM takes for a model. Pure.

vLLM refuses to start with a larger ``--max-model-len`` (``vllm/config/model.py``, ``_get_and_verify_max_len``): its
own limit is config.json's, stretched by a rope scaling that config.json does not count itself.
"""

from __future__ import annotations

from typing import Any

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.refusal import RefusedError

ALLOW_LONGER = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
# rope types whose max_position_embeddings is the stretched length already
_COUNTED_ROPE_TYPES = frozenset(
    {"default", "su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling", "mrope"}
)


def refuse_longer(asked_tokens: int, config: dict[str, Any], max_model_len: int, env: list[dict[str, Any]]) -> None:
    """Refuse a context that is longer than the model takes.

    ``max_model_len`` is what config.json says in tokens, ``env`` are the engine's variables: whoever sets
    ``VLLM_ALLOW_LONG_MAX_MODEL_LEN`` knows what it does.

    Raises:
        RefusedError: ``spec.engine.maxModelLen`` is too long.
    """
    limit = longest_tokens(config, max_model_len)
    if asked_tokens <= limit or _is_allowed(env):
        return
    raise RefusedError(
        Reason.INVALID_SPEC,
        f"spec.engine.maxModelLen {asked_tokens} is more than the {limit} tokens that config.json allows, so vLLM "
        f"would not start: use {limit} or less, or set {ALLOW_LONGER}=1 in spec.engine.env.",
    )


def longest_tokens(config: dict[str, Any], max_model_len: int) -> int:
    """Return the longest context in tokens; ``max_model_len`` is the one that config.json says."""
    text = config.get("text_config")
    parts = [config, text] if isinstance(text, dict) else [config]
    stated = [int(each["model_max_length"]) for each in parts if _is_count(each.get("model_max_length"))]
    factors = [factor for each in parts for factor in _factors(each)]
    return max(max_model_len, int(max_model_len * max(factors, default=1)), *stated)


def _factors(config: dict[str, Any]) -> list[float]:
    if "gemma3" in str(config.get("model_type")):
        return []
    found = []
    for name in ("rope_scaling", "rope_parameters"):
        rope = config.get(name)
        for each in _ropes(rope) if isinstance(rope, dict) else []:
            kind = each.get("rope_type", each.get("type", "default"))
            factor = each.get("factor")
            if str(kind) not in _COUNTED_ROPE_TYPES and isinstance(factor, int | float) and 1 <= factor <= 1024:
                found.append(float(factor))
    return found


def _ropes(rope: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parameters themselves, or those of each kind of layer."""
    return [rope, *(each for each in rope.values() if isinstance(each, dict))]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_allowed(env: list[dict[str, Any]]) -> bool:
    values = (str(each.get("value")).strip().lower() for each in env if each.get("name") == ALLOW_LONGER)
    return any(value in ("1", "true") for value in values)
