"""A model as its KV cache sees it, from config.json. Pure.

Fields are those of Hugging Face configurations. Which types are read, and what was compared, is in
``core.model.model_families``.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.model import checkpoint_types
from couchbase_lm_operator.core.model.architectures import check_architectures
from couchbase_lm_operator.core.model.attention_families import attention_heads
from couchbase_lm_operator.core.model.config_fields import MAX_TOKENS, ConfigFields
from couchbase_lm_operator.core.model.model_families import FAMILIES, REAL_RUN, SPEC_LEVEL, WRAPPERS
from couchbase_lm_operator.core.refusal import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from couchbase_lm_operator.core.model.layer_cache import Layer

Config = dict[str, Any]

OVERRIDE = "override"
"""Evidence of a shape whose numbers a person gave."""

_TEXT_FIELDS = ("text_config", "llm_config", "language_config")
_MAX_MODEL_TYPE_CHARACTERS = 64


@dataclass(frozen=True)
class ModelShape:
    """A decoder: its layers in order, and for each what it keeps.

    ``speculative_layers`` are the checkpoint's own for multi-token prediction, kept only when the engine
    uses them. ``kv_dtype`` is the 8-bit type the checkpoint asks for, or None. ``override_bytes_per_token``
    is set when a person gave the numbers (then there are no layers). ``ignores_kv_dtype`` says that vLLM keeps
    the cache in the model's own type whatever the flag says.
    """

    model_type: str
    architecture: str
    evidence: str
    layers: tuple[Layer, ...]
    speculative_layers: tuple[Layer, ...]
    attention_heads: int
    max_model_len: int
    dtype: str
    kv_dtype: str | None
    override_bytes_per_token: int | None = None
    ignores_kv_dtype: bool = False


def read_shape(config: Config, where: str) -> ModelShape:
    """Return the shape of a model.

    ``where`` names the configuration for people, for example ``ConfigMap m, key config.json``.

    Raises:
        RefusedError: unknown ``model_type``, a known one in an unknown shape, or a field that is missing, of
            the wrong kind or absurd.
    """
    text, text_where = text_config(config), _text_where(config, where)
    model_type = _model_type(text, text_where)
    family = FAMILIES.get(model_type)
    if text is not config:
        _check_wrapper(config, model_type, where)
    if family is None:
        raise ConfigFields(text, text_where).unsupported(
            f"model_type {model_type!r} is not one that this version can size{_similar(model_type, FAMILIES)}."
        )
    check_architectures(config, ConfigFields(config, where))
    fields = ConfigFields({**family.defaults, **text}, text_where)
    max_model_len = _max_model_len(fields)
    heads = attention_heads(fields)
    layers = family.read(fields)
    speculative = family.read_next(fields) if family.read_next else ()
    unread = fields.first_unread()
    if unread is not None:
        raise fields.unsupported(f"model_type {model_type!r} with {unread} is a variant that this version cannot size.")
    return ModelShape(
        model_type=model_type,
        architecture=_architecture(config),
        # inside other models decoders were only ever compared alone
        evidence=SPEC_LEVEL if text is not config and family.evidence == REAL_RUN else family.evidence,
        layers=layers,
        speculative_layers=speculative,
        attention_heads=heads,
        max_model_len=max_model_len,
        dtype=checkpoint_types.model_dtype(text, config, where),
        kv_dtype=checkpoint_types.kv_dtype(text, config, where),
        ignores_kv_dtype=family.ignores_kv_dtype,
    )


def text_config(config: Config) -> Config:
    """Return the configuration of the language model inside one of several kinds of input, or the whole."""
    field = _text_field(config)
    text: Config = config[field] if field else config
    return text


def overridden_shape(config: Config, bytes_per_token: int, where: str) -> ModelShape:
    """Return the shape of a model whose numbers a person gave; only length and type are read.

    Raises:
        RefusedError: ``max_position_embeddings`` is missing or absurd.
    """
    text, text_where = text_config(config), _text_where(config, where)
    return ModelShape(
        model_type=_model_type(config, where),
        architecture=_architecture(config),
        evidence=OVERRIDE,
        layers=(),
        speculative_layers=(),
        attention_heads=0,
        max_model_len=_max_model_len(ConfigFields(text, text_where)),
        dtype=checkpoint_types.model_dtype(text, config, where),
        kv_dtype=checkpoint_types.kv_dtype(text, config, where),
        override_bytes_per_token=bytes_per_token,
    )


def _check_wrapper(config: Config, model_type: str, where: str) -> None:
    """Refuse a decoder inside a model that is not known to keep only that decoder's cache."""
    wrapper = _model_type(config, where)
    if model_type not in WRAPPERS.get(wrapper, ()):
        raise ConfigFields(config, where).unsupported(
            f"model_type {wrapper!r} around a {model_type!r} is not one that this version can size"
            f"{_similar(wrapper, WRAPPERS)}."
        )


def _similar(model_type: str, known: Iterable[str]) -> str:
    """Return what to read next: all names would bury the sentence."""
    close = get_close_matches(model_type, sorted(known), n=3)
    return f" (similar names: {', '.join(close)}; docs/models.md lists all)" if close else " (docs/models.md lists all)"


def _text_field(config: Config) -> str:
    return next((name for name in _TEXT_FIELDS if isinstance(config.get(name), dict)), "")


def _text_where(config: Config, where: str) -> str:
    return f"{where}, {_text_field(config)}" if _text_field(config) else where


def _model_type(config: Config, where: str) -> str:
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not model_type or len(model_type) > _MAX_MODEL_TYPE_CHARACTERS:
        raise RefusedError(
            Reason.MODEL_CONFIG_INVALID,
            f"{where}: model_type is missing or not a short text. Is this the config.json of a model?",
        )
    return model_type


def _max_model_len(fields: ConfigFields) -> int:
    """Return the longest context: ``model_max_length`` alone where it is set, as vLLM has it (Kimi Linear)."""
    given = fields.integer_or_none("model_max_length", high=MAX_TOKENS)
    if given is not None:
        return given
    return fields.integer("max_position_embeddings", "seq_length", "n_positions", high=MAX_TOKENS)


def _architecture(config: Config) -> str:
    names = config.get("architectures")
    first = names[0] if isinstance(names, list) and names else ""
    return first[:128] if isinstance(first, str) else ""
