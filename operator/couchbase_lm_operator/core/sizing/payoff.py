"""Does the cache pay off: time to load a context against time to compute it again. Pure.

A prediction from two assumed rates until real loads were seen. Both defaults describe one plain server of today,
on purpose neither the slowest nor the fastest, and both can be given:

- loading: 2 GB/s, two thirds of what 25 Gbit/s Ethernet carries. The adapter's own transport reached 3.4 GB/s in large
  objects where client and server share two cores (benchmarks/l2), so the network is what limits it on a real server.
- computing: 150 TFLOP/s for each GPU, half of the 312 dense bfloat16 TFLOP/s of an A100; long prompts reach about
  that share. An H100 reaches some 400. For CPUs 1 TFLOP/s, what a socket with bfloat16 instructions keeps up.

Ranks are taken to compute at once without loss, which flatters recomputing and never the cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log10
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from couchbase_lm_operator.core.model.prefill_cost import PrefillCost
    from couchbase_lm_operator.core.sizing.sizing import Sizing

DEFAULT_LOAD_GIGABYTES_PER_SECOND = 2.0
"""10^9 bytes per second into one pod's L1, all its ranks together."""
DEFAULT_PREFILL_TERAFLOPS = {"cuda": 150.0, "cpu": 1.0}
"""10^12 floating-point operations per second of one rank, by platform."""

_SHOWN_DIGITS = 2


@dataclass(frozen=True)
class Rates:
    """How fast a pod loads (all ranks together) and how fast one of its ranks computes."""

    load_bytes_per_second: float
    prefill_flops_per_second_rank: float


@dataclass(frozen=True)
class Payoff:
    """What one context costs both ways.

    ``tokens`` are those that can be loaded: whole chunks only, the rest is computed either way.
    ``prefill_flops``, ``prefill_seconds`` and ``break_even_bytes_per_second`` are None where the configuration does
    not tell what a token costs, and ``is_worthwhile`` then is None too: unknown. Loading is worthwhile above
    ``break_even_bytes_per_second``.
    """

    tokens: int
    loaded_bytes: int
    load_seconds: float
    prefill_flops: int | None
    prefill_seconds: float | None
    break_even_bytes_per_second: float | None
    is_worthwhile: bool | None


def assumed_rates(
    platform: str, load_gigabytes_per_second: float | None = None, prefill_teraflops: float | None = None
) -> Rates:
    """Return the given rates, with the defaults of ``platform`` (``cuda`` or ``cpu``) for those that are None."""
    load = DEFAULT_LOAD_GIGABYTES_PER_SECOND if load_gigabytes_per_second is None else load_gigabytes_per_second
    prefill = DEFAULT_PREFILL_TERAFLOPS[platform] if prefill_teraflops is None else prefill_teraflops
    return Rates(load * 1e9, prefill * 1e12)


def payoff(tokens: int, loaded_bytes: int, prefill_flops: int | None, ranks: int, rates: Rates) -> Payoff:
    """Compare loading with computing.

    ``tokens`` are those in whole chunks, ``loaded_bytes`` what all ranks load for them, ``prefill_flops`` what the
    whole model computes for them, or None, ``ranks`` how many share that work (tensor x pipeline parallel).
    """
    load_seconds = loaded_bytes / rates.load_bytes_per_second
    if prefill_flops is None:
        return Payoff(tokens, loaded_bytes, load_seconds, None, None, None, None)
    prefill_seconds = prefill_flops / (rates.prefill_flops_per_second_rank * ranks)
    return Payoff(
        tokens=tokens,
        loaded_bytes=loaded_bytes,
        load_seconds=load_seconds,
        prefill_flops=prefill_flops,
        prefill_seconds=prefill_seconds,
        break_even_bytes_per_second=loaded_bytes / prefill_seconds if prefill_seconds else None,
        is_worthwhile=load_seconds < prefill_seconds,
    )


def context_payoff(sizing: Sizing, cost: PrefillCost | None, ranks: int, rates: Rates) -> Payoff:
    """Compare both for the typical context of a sizing.

    ``cost`` is the model's, or None when it is not known; ``ranks`` share the computing (tensor x pipeline parallel,
    which for latent attention are more than the ranks that store).
    """
    tokens = sizing.chunks_per_context * sizing.chunk_size_tokens
    return payoff(tokens, sizing.loaded_bytes_per_context, cost.flops(tokens) if cost else None, ranks, rates)


def shown_seconds(seconds: float) -> float:
    """Return a time with two significant digits, which is all that a prediction or a short observation is worth."""
    if seconds <= 0:
        return 0.0
    return round(seconds, _SHOWN_DIGITS - 1 - floor(log10(seconds)))
