"""The few numbers of a model's config.json that decide the size of its KV cache. Pure.

Only model types whose numbers were compared with what vLLM 0.32 and LMCache 0.5.6 really register are
read; a formula that guesses is wrong in silence for hybrid, latent-attention and multi-block models.
Fields are those of Hugging Face configurations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.refusal import RefusedError

Config = dict[str, Any]

_MAX_LAYERS = 1000
_MAX_HEADS = 4096
_MAX_HEAD_SIZE = 4096
_MAX_HIDDEN_SIZE = 1 << 20
_MAX_MODEL_LEN = 100_000_000
_KV_HEAD_FIELDS = ("n_head_kv", "num_kv_heads", "num_key_value_heads")
_DTYPES = {"bfloat16": "bfloat16", "float16": "float16", "half": "float16", "float32": "float32", "float": "float32"}
# Fields of families with states, latent or shared caches: a known type that carries them is not what we know.
_FOREIGN_FIELDS = ("kv_lora_rank", "mamba_d_state", "mamba_num_heads", "ssm_cfg", "linear_num_key_heads", "state_size")


@dataclass(frozen=True)
class ModelShape:
    """A decoder as its KV cache sees it.

    ``head_size_k`` and ``head_size_v`` are elements; ``window_tokens`` is the sliding window that all
    layers share, or None; ``kv_dtype`` is the 8-bit type the checkpoint asks for, or None;
    ``override_bytes_per_token`` is set when a person gave the numbers (then layers and heads are 0).
    """

    model_type: str
    layers: int
    attention_heads: int
    kv_heads: int
    head_size_k: int
    head_size_v: int
    max_model_len: int
    dtype: str
    kv_dtype: str | None
    window_tokens: int | None
    override_bytes_per_token: int | None = None


def _no_window(_config: Config, _where: str) -> int | None:
    return None


def _plain_window(config: Config, where: str) -> int | None:
    if config.get("sliding_window") is None:
        return None
    return _integer(config, ("sliding_window",), 1, _MAX_MODEL_LEN, where)


def _qwen_window(config: Config, where: str) -> int | None:
    if not config.get("use_sliding_window"):
        return None
    first_sliding = config.get("max_window_layers", 0)
    layers = config.get("num_hidden_layers")
    if first_sliding == layers:
        return None
    if first_sliding != 0:
        raise RefusedError(
            Reason.MODEL_NOT_SUPPORTED,
            f"{where}: use_sliding_window with max_window_layers {first_sliding} mixes full and sliding-window layers, "
            "which this version cannot size. Set spec.model.override, or use_sliding_window to false in a copy of "
            "config.json.",
        )
    return _plain_window(config, where)


# model_type -> how its sliding window is read
_FAMILIES = {
    "llama": _no_window,
    "mistral": _plain_window,
    "qwen2": _qwen_window,
    "qwen3": _qwen_window,
    "phi3": _plain_window,
    "starcoder2": _plain_window,
    "cohere": _no_window,
    "falcon": _no_window,
}
SUPPORTED_MODEL_TYPES = tuple(sorted(_FAMILIES))


def read_shape(config: Config, where: str) -> ModelShape:
    """Return the shape of a model.

    ``where`` names the configuration for people, for example ``ConfigMap m, key config.json``.

    Raises:
        RefusedError: unknown ``model_type``, or a field that is missing, of the wrong kind or absurd.
    """
    model_type = _model_type(config, where)
    if model_type not in _FAMILIES:
        raise RefusedError(
            Reason.MODEL_NOT_SUPPORTED,
            f"{where}: model_type {model_type!r} is not one that this version can size "
            f"({', '.join(SUPPORTED_MODEL_TYPES)}). Set spec.model.override with kvBytesPerToken and blockSize.",
        )
    foreign = [field for field in _FOREIGN_FIELDS if config.get(field) is not None]
    if foreign or config.get("is_encoder_decoder"):
        field = foreign[0] if foreign else "is_encoder_decoder"
        raise RefusedError(
            Reason.MODEL_NOT_SUPPORTED,
            f"{where}: model_type {model_type!r} with {field} is a variant that this version cannot size. "
            "Set spec.model.override with kvBytesPerToken and blockSize.",
        )
    heads = _integer(config, ("num_attention_heads", "n_head"), 1, _MAX_HEADS, where)
    head_size = _head_size(config, heads, where)
    return ModelShape(
        model_type=model_type,
        layers=_integer(config, ("num_hidden_layers", "n_layer"), 1, _MAX_LAYERS, where),
        attention_heads=heads,
        kv_heads=_kv_heads(config, model_type, heads, where),
        head_size_k=head_size,
        head_size_v=head_size,
        max_model_len=_integer(config, ("max_position_embeddings",), 1, _MAX_MODEL_LEN, where),
        dtype=_dtype(config, where),
        kv_dtype=_kv_dtype(config, where),
        window_tokens=_window(config, model_type, where),
    )


def overridden_shape(config: Config, bytes_per_token: int, where: str) -> ModelShape:
    """Return the shape of a model whose numbers a person gave; only length and type are read.

    Raises:
        RefusedError: ``max_position_embeddings`` is missing or absurd.
    """
    text = config.get("text_config") if isinstance(config.get("text_config"), dict) else config
    assert isinstance(text, dict)  # noqa: S101 - for the type checker
    return ModelShape(
        model_type=_model_type(config, where),
        layers=0,
        attention_heads=0,
        kv_heads=0,
        head_size_k=0,
        head_size_v=0,
        max_model_len=_integer(text, ("max_position_embeddings",), 1, _MAX_MODEL_LEN, where),
        dtype=_dtype({**text, **config}, where),
        kv_dtype=_kv_dtype(config, where),
        window_tokens=None,
        override_bytes_per_token=bytes_per_token,
    )


def _model_type(config: Config, where: str) -> str:
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not model_type or len(model_type) > 64:
        raise RefusedError(
            Reason.MODEL_CONFIG_INVALID,
            f"{where}: model_type is missing or not a short text. Is this the config.json of a model?",
        )
    return model_type


def _kv_heads(config: Config, model_type: str, heads: int, where: str) -> int:
    if model_type == "falcon" and config.get("multi_query") and not config.get("new_decoder_architecture"):
        return 1
    present = tuple(field for field in _KV_HEAD_FIELDS if config.get(field) is not None)
    if not present:
        return heads
    kv_heads = _integer(config, present[:1], 1, heads, where)
    if heads % kv_heads:
        raise RefusedError(
            Reason.MODEL_CONFIG_INVALID,
            f"{where}: {present[0]} {kv_heads} does not divide the {heads} attention heads.",
        )
    return kv_heads


def _head_size(config: Config, heads: int, where: str) -> int:
    if config.get("head_dim") is not None:
        return _integer(config, ("head_dim",), 1, _MAX_HEAD_SIZE, where)
    hidden = _integer(config, ("hidden_size",), 1, _MAX_HIDDEN_SIZE, where)
    if hidden % heads:
        raise RefusedError(
            Reason.MODEL_CONFIG_INVALID,
            f"{where}: hidden_size {hidden} is not a multiple of the {heads} attention heads; head_dim is missing.",
        )
    return hidden // heads


def _window(config: Config, model_type: str, where: str) -> int | None:
    layer_types = config.get("layer_types")
    if layer_types is None:
        return _FAMILIES[model_type](config, where)
    kinds = set(layer_types) if isinstance(layer_types, list) and all(isinstance(t, str) for t in layer_types) else None
    if kinds == {"full_attention"}:
        return None
    if kinds == {"sliding_attention"}:
        return _integer(config, ("sliding_window",), 1, _MAX_MODEL_LEN, where)
    raise RefusedError(
        Reason.MODEL_NOT_SUPPORTED,
        f"{where}: layer_types must be all full_attention or all sliding_attention; this version cannot size a mix. "
        "Set spec.model.override with kvBytesPerToken and blockSize.",
    )


def _dtype(config: Config, where: str) -> str:
    value = config.get("torch_dtype", config.get("dtype"))
    if value is None:
        return "float32"
    name = value.removeprefix("torch.") if isinstance(value, str) else ""
    if name not in _DTYPES:
        raise RefusedError(
            Reason.MODEL_CONFIG_INVALID,
            f"{where}: torch_dtype is {str(value)[:64]!r}; known are bfloat16, float16 and float32.",
        )
    return _DTYPES[name]


def _kv_dtype(config: Config, where: str) -> str | None:
    """Return the KV type that a quantised checkpoint asks for (compressed-tensors and ModelOpt schemes)."""
    quantization = config.get("quantization_config")
    if not isinstance(quantization, dict):
        return None
    scheme = quantization.get("kv_cache_scheme")
    algorithm = quantization.get("kv_cache_quant_algo")
    if scheme is None and algorithm is None:
        return None
    is_float8 = isinstance(scheme, dict) and scheme.get("num_bits") == 8 and scheme.get("type") == "float"
    if is_float8 or algorithm == "FP8":
        return "fp8"
    raise RefusedError(
        Reason.MODEL_NOT_SUPPORTED,
        f"{where}: quantization_config asks for a KV cache other than 8-bit float, which this version cannot size.",
    )


def _integer(config: Config, fields: tuple[str, ...], low: int, high: int, where: str) -> int:
    """Return the first present field as a whole number within the bounds."""
    name = next((field for field in fields if config.get(field) is not None), None)
    if name is None:
        raise RefusedError(Reason.MODEL_CONFIG_INVALID, f"{where}: {fields[0]} is missing.")
    value = config[name]
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise RefusedError(
            Reason.MODEL_CONFIG_INVALID,
            f"{where}: {name} is {str(value)[:64]!r}; it must be a whole number from {low} to {high}.",
        )
    return value
