"""The model types that are sized, how each is read, and what says that the numbers are right. Pure.

Only types whose numbers were compared with vLLM 0.32 and LMCache 0.5.6 are listed: a formula that guesses
is wrong in silence for hybrid, latent-attention and multi-block models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from couchbase_lm_operator.core import attention_families as attention

if TYPE_CHECKING:
    from collections.abc import Callable

    from couchbase_lm_operator.core.attention_families import Layers
    from couchbase_lm_operator.core.config_fields import ConfigFields

REAL_RUN = "real run"
"""Objects that a real engine and server stored had the predicted bytes."""
SPEC_LEVEL = "spec level"
"""vLLM's own model class and LMCache's own size code gave the predicted bytes, without serving."""
FORMULA = "formula"
"""The formula of the family, which other types were compared with."""


@dataclass(frozen=True)
class Family:
    """How one model type is read; ``evidence`` is one of the three above."""

    read: Callable[[ConfigFields], Layers]
    evidence: str


FAMILIES: dict[str, Family] = {
    "cohere": Family(attention.full, SPEC_LEVEL),
    "falcon": Family(attention.falcon, REAL_RUN),
    "llama": Family(attention.full, REAL_RUN),
    "mistral": Family(attention.windowed, REAL_RUN),
    "phi3": Family(attention.windowed, SPEC_LEVEL),
    "qwen2": Family(attention.qwen, SPEC_LEVEL),
    "qwen3": Family(attention.qwen, REAL_RUN),
    "starcoder2": Family(attention.windowed, SPEC_LEVEL),
}
