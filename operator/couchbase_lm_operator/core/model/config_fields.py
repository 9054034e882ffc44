"""One configuration of Hugging Face, read field by field: bounds, kinds, and what nobody looked at. Pure."""

from __future__ import annotations

import re
from typing import Any

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.refusal import RefusedError

MAX_LAYERS = 1000
MAX_HEADS = 4096
MAX_HEAD_SIZE = 4096
MAX_HIDDEN_SIZE = 1 << 20
MAX_TOKENS = 100_000_000

_SHOWN_CHARACTERS = 64
# Fields that shape a cache in some family: where a family does not read one of them, its shape is unknown.
_TELLING = re.compile(
    r"^(mamba_|hybrid_|ssm_|linear_(num|head|key|value|conv|attn)|index_|swa_|shortconv|short_conv|conv_(L_|kernel|dim)"
    r"|global_head_dim|num_global_|num_kv_shared|attention_chunk_size|attn_(type_list|layer_)|add_swa"
    r"|per_layer_config|block_configs|layers?_block_type|block_types|compress|kda_|cross_attention|is_encoder_decoder"
    r"|sliding_window_(pattern|list)|attention_k_eq_v|partial_rotary_type|num_mem_blocks|use_mem|attention_other)"
    r"|_lora_rank$|state_size|layer_types$"
)
# Carried for other things: by adapters, and to tell which layers are mixtures of experts.
_HARMLESS = frozenset({"sliding_window_pattern", "mlp_layer_types"})


class ConfigFields:
    """Reads fields and remembers their names.

    ``where`` names the configuration for people. Every method refuses with the name of the field.
    """

    def __init__(self, config: dict[str, Any], where: str) -> None:
        self._config = config
        self._where = where
        self._read: set[str] = set()

    def has(self, name: str) -> bool:
        """Say whether a field is there and not null."""
        self._read.add(name)
        return self._config.get(name) is not None

    def integer(self, *names: str, low: int = 1, high: int = MAX_HIDDEN_SIZE) -> int:
        """Return the first field that is present, a whole number within the bounds.

        Raises:
            RefusedError: none is present, or its value is no such number.
        """
        found = self.integer_or_none(*names, low=low, high=high)
        if found is None:
            raise self.invalid(f"{names[0]} is missing.")
        return found

    def integer_or_none(self, *names: str, low: int = 1, high: int = MAX_HIDDEN_SIZE) -> int | None:
        """Return the first field that is present, or None."""
        self._read.update(names)
        name = next((each for each in names if self._config.get(each) is not None), None)
        if name is None:
            return None
        value = self._config[name]
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.invalid(f"{name} is {shown(value)}; it must be a whole number from {low} to {high}.")
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a field that is true or false."""
        self._read.add(name)
        value = self._config.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.invalid(f"{name} is {shown(value)}; it must be true or false.")
        return value

    def text_or_none(self, name: str) -> str | None:
        """Return a field that is a text, or None."""
        self._read.add(name)
        value = self._config.get(name)
        if value is not None and not isinstance(value, str):
            raise self.invalid(f"{name} is {shown(value)}; it must be a text.")
        return value

    def texts_or_none(self, name: str, count: int | None) -> tuple[str, ...] | None:
        """Return a list with one text for each of ``count`` layers, or None; a count of None takes any."""
        self._read.add(name)
        value = self._config.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self.invalid(f"{name} must be a list of texts, one for each layer.")
        if count is not None and len(value) != count:
            raise self.invalid(f"{name} has {len(value)} entries for {count} layers.")
        return tuple(value)

    def integers_or_none(self, name: str, high: int) -> tuple[int, ...] | None:
        """Return a list of whole numbers from 0 to ``high``, or None."""
        self._read.add(name)
        value = self._config.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(type(each) is int and 0 <= each <= high for each in value):
            raise self.invalid(f"{name} must be a list of whole numbers from 0 to {high}.")
        return tuple(value)

    def nested(self, name: str) -> ConfigFields:
        """Return the fields of a mapping inside this one."""
        self._read.add(name)
        value = self._config.get(name)
        if not isinstance(value, dict):
            raise self.invalid(f"{name} is missing or no mapping.")
        return ConfigFields(value, f"{self._where}, {name}")

    def raw(self, name: str) -> object:
        """Return a field as it is."""
        self._read.add(name)
        return self._config.get(name)

    def knows(self, *names: str) -> None:
        """Mark fields as understood though their values decide nothing."""
        self._read.update(names)

    def first_unread(self) -> str | None:
        """Return a field that tells of a shape and that nobody read, or None. Null, false, 0 and [] tell nothing."""
        return next(
            (
                str(name)
                for name, value in self._config.items()
                if value and name not in self._read and name not in _HARMLESS and _TELLING.search(str(name))
            ),
            None,
        )

    def invalid(self, told: str) -> RefusedError:
        """Return the refusal of a broken field."""
        return RefusedError(Reason.MODEL_CONFIG_INVALID, f"{self._where}: {told}")

    def unsupported(self, told: str) -> RefusedError:
        """Return the refusal of a shape that is not known."""
        return RefusedError(
            Reason.MODEL_NOT_SUPPORTED,
            f"{self._where}: {told} Set spec.model.override with kvBytesPerToken and blockSize.",
        )


def shown(value: object) -> str:
    """Return a value for a message, cut to what a line holds."""
    return repr(value if isinstance(value, int | float | bool) else str(value)[:_SHOWN_CHARACTERS])[
        : _SHOWN_CHARACTERS + 2
    ]
