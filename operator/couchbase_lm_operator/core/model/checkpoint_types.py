"""The data types that a checkpoint asks for: of its weights, and of its KV cache. Pure."""

from __future__ import annotations

from typing import Any

from couchbase_lm_operator.core.model.config_fields import ConfigFields, shown

_DTYPES = {"bfloat16": "bfloat16", "float16": "float16", "half": "float16", "float32": "float32", "float": "float32"}
_QUANTIZATION_FIELDS = ("quantization_config", "compression_config")
_FLOAT8_BITS = 8


def model_dtype(text: dict[str, Any], config: dict[str, Any], where: str) -> str:
    """Return the type of the weights; a model of several kinds of input may say it outside its decoder.

    Raises:
        RefusedError: a type that is not known.
    """
    value = next(
        (part[name] for part in (text, config) for name in ("torch_dtype", "dtype") if part.get(name) is not None),
        "float32",
    )
    name = value.removeprefix("torch.") if isinstance(value, str) else ""
    if name not in _DTYPES:
        raise ConfigFields(config, where).invalid(
            f"torch_dtype is {shown(value)}; known are bfloat16, float16 and float32."
        )
    return _DTYPES[name]


def kv_dtype(text: dict[str, Any], config: dict[str, Any], where: str) -> str | None:
    """Return the KV type that a quantised checkpoint asks for, or None.

    Follows vLLM's ``get_kv_cache_quant_algo_string`` (ModelOpt) and its attention layer (compressed-tensors).

    Raises:
        RefusedError: a type other than 8-bit float.
    """
    asked = [
        value
        for part in (config, text)
        for field in _QUANTIZATION_FIELDS
        for value in _asked(part.get(field))
        if value is not None
    ]
    if not asked:
        return None
    if all(_is_float8(value) for value in asked):
        return "fp8"
    raise ConfigFields(config, where).unsupported(
        "quantization_config asks for a KV cache other than 8-bit float, which this version cannot size."
    )


def _asked(quantization: object) -> list[object]:
    """Return what one quantization says of the KV cache; ModelOpt nests it once more."""
    if not isinstance(quantization, dict):
        return []
    inner = quantization.get("quantization")
    parts = [quantization, inner] if isinstance(inner, dict) else [quantization]
    return [part.get(name) for part in parts for name in ("kv_cache_scheme", "kv_cache_quant_algo")]


def _is_float8(value: object) -> bool:
    if isinstance(value, dict):
        return value.get("num_bits") == _FLOAT8_BITS and value.get("type") == "float"
    return isinstance(value, str) and value.lower() == "fp8"
