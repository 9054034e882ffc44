"""Kinds of values that options of ``lmcb size`` take, so that a wrong one is told in the words of its option."""

from __future__ import annotations

import math
import re
from typing import Any

import click

RANKS = click.IntRange(1, 64)
TOKENS = click.IntRange(1, 100_000_000)
CONTEXTS = click.IntRange(1, 100_000_000)
BLOCK_TOKENS = click.IntRange(1, 1 << 20)
DTYPE = click.Choice(["auto", "bfloat16", "float16", "half", "float32", "float"])
# what vLLM 0.32 takes; which of them can be sized for a model is for the core to say
KV_CACHE_DTYPE = click.Choice(
    [
        *("auto", "bfloat16", "float16", "float32", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc"),
        *("fp8_ds_mla", "nvfp4_ds_mla", "fp8_per_token_head", "int8_per_token_head", "int4_per_token_head"),
        *("nvfp4", "nvfp4_4over6", "ultraquant_4bit"),
        *("turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc"),
    ]
)

_NAME = re.compile(r"\w[\w-]{0,63}", re.ASCII)
_MAX_SHOWN_CHARACTERS = 64


class Rate(click.FloatRange):
    """A speed: a finite number above 0. (NaN is in every range, as it compares to nothing.)"""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True, max=1e6)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or fail in the words of the option."""
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return found


class Name(click.types.StringParamType):
    """A short word of letters, digits and underscores."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the word, or fail in the words of the option."""
        text = super().convert(value, param, ctx)
        if not _NAME.fullmatch(text):
            self.fail(f"{text[:_MAX_SHOWN_CHARACTERS]!r} is not a name of letters, digits, _ and -.", param, ctx)
        return text
