"""What users' own arguments of vLLM say about the layout of the cache. Pure.

Most arguments that shape the cache are the operator's (``core.engine.flags``). A few are a matter of taste within
bounds, so users give them and the sizing reads them here, with vLLM's spellings: ``--a-b c``, ``--a_b=c``,
abbreviations, and whichever comes last.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.engine.flags import normalised
from couchbase_lm_operator.core.refusal import RefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

FIELD = "spec.engine.extraArgs"
_BATCH = "--max-num-batched-tokens"
_STATE_DTYPE = "--mamba-ssm-cache-dtype"
_CONVOLUTION_DTYPE = "--mamba-cache-dtype"
_SWITCHES = {
    "--enable-prefix-caching": True,
    "--no-enable-prefix-caching": False,
    "--enable-chunked-prefill": True,
    "--no-enable-chunked-prefill": False,
}
_READ = (_BATCH, _STATE_DTYPE, _CONVOLUTION_DTYPE, *_SWITCHES)
# vLLM's human_readable_int
_NUMBER = re.compile(r"^([0-9]{1,9}|[0-9]{1,9}\.[0-9]{1,9}(?=[km]))([kKmM]?)$")
_SCALE = {"": 1, "k": 10**3, "K": 1 << 10, "m": 10**6, "M": 1 << 20}


@dataclass(frozen=True)
class LayoutFlags:
    """The arguments; None where users left vLLM's, or the operator's, default.

    ``switched_off`` are the flags that turn off what models with recurrent layers cannot do without.
    """

    max_num_batched_tokens: int | None = None
    mamba_ssm_cache_dtype: str | None = None
    mamba_cache_dtype: str | None = None
    switched_off: tuple[str, ...] = ()

    def refuse_for_recurrent_layers(self) -> None:
        """Refuse what vLLM and LMCache need for models with recurrent layers.

        A state is only worth storing at the edge of a block, which is what vLLM's cache mode ``align`` makes, and
        that needs prefix caching and prefill in steps.

        Raises:
            RefusedError: one of them is switched off.
        """
        if self.switched_off:
            raise RefusedError(
                Reason.FLAG_NOT_ALLOWED,
                f"{FIELD} has {self.switched_off[0]}: the states of this model's recurrent layers cannot be cached "
                "without it. Remove the flag.",
            )


def read_layout_flags(arguments: Sequence[str]) -> LayoutFlags:
    """Return what ``spec.engine.extraArgs`` says.

    Raises:
        RefusedError: a number that is none, or a flag without its value; the message names the position.
    """
    values: dict[str, str] = {}
    switches: dict[str, bool] = {}
    batch: int | None = None
    for position, argument in enumerate(arguments):
        flag = _read_flag(normalised(argument)) if argument.startswith("--") else None
        if flag in _SWITCHES:
            switches[flag.removeprefix("--no-").removeprefix("--")] = _SWITCHES[flag]
        elif flag is not None:
            values[flag] = _value(arguments, position, flag)
            if flag == _BATCH:
                batch = _tokens(values[flag], position)
    return LayoutFlags(
        max_num_batched_tokens=batch,
        mamba_ssm_cache_dtype=_stated(values.get(_STATE_DTYPE)),
        mamba_cache_dtype=_stated(values.get(_CONVOLUTION_DTYPE)),
        switched_off=tuple(sorted(f"--no-{name}" for name, is_on in switches.items() if not is_on)),
    )


def _read_flag(flag: str) -> str | None:
    """Return the flag that is read and that vLLM's parser would complete ``flag`` to."""
    if flag in _READ:
        return flag
    completed = [each for each in _READ if each.startswith(flag)]
    return completed[0] if len(completed) == 1 and len(flag) > len("--m") else None


def _value(arguments: Sequence[str], position: int, flag: str) -> str:
    _, has_value, value = arguments[position].partition("=")
    if has_value:
        return value
    if position + 1 == len(arguments):
        raise RefusedError(Reason.FLAG_NOT_ALLOWED, f"{FIELD}[{position}] is {flag} without a value: give one.")
    return arguments[position + 1]


def _tokens(text: str, position: int) -> int:
    match = _NUMBER.match(text)
    if match is None or (tokens := int(float(match[1]) * _SCALE[match[2]])) == 0:
        raise RefusedError(
            Reason.FLAG_NOT_ALLOWED,
            f"{FIELD}[{position}] is {_BATCH}, which decides what is cached: write its tokens as a number, such as "
            "8192 or 8k, without a variable.",
        )
    return tokens


def _stated(dtype: str | None) -> str | None:
    return None if dtype == "auto" else dtype
