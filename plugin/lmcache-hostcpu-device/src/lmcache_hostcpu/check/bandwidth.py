"""How fast the transfer operation is, beside the baseline and a plain copy of the same bytes in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from lmcache import lmcache_native
from lmcache.v1.platform import torch_ops

from lmcache_hostcpu.check import operations, paged
from lmcache_hostcpu.check.report import Failed, NotApplicable, tell

TITLE = "Bandwidth"
_TOKENS, _CHUNKS = 256, 2
_ROUNDS = 4
# Other programs on the machine disturb single rounds; the best of several is compared, with this much tolerance.
_TOLERANCE = 0.8


def check(spec: Any) -> None:
    """Measure both directions for a cache with 8 KV heads of 128 elements, head-major, as vLLM has it on a CPU."""
    for name, direction in (
        ("store", lmcache_native.TransferDirection.D2H),
        ("load", lmcache_native.TransferDirection.H2D),
    ):
        tell(TITLE, name, lambda direction=direction: _measure(spec, direction))  # type: ignore[misc]


def _measure(spec: Any, direction: Any) -> str:
    ops = spec.get_ops()
    if operations.TRANSFER not in operations.bound(ops):
        raise NotApplicable("the baseline's")
    layout = next(layout for layout in paged.LAYOUTS if layout.name == "NL_X_NB_NH_BS_CS")
    blocks = _CHUNKS * _TOKENS // paged.BLOCK_TOKENS
    host = paged.cache(layout, torch.bfloat16, layers=8, blocks=blocks * 2, heads=8, head_size=128, seed=1)
    cache = host.clone(spec.device_type)
    chunks = [cache.chunk(_TOKENS, seed=number) for number in range(_CHUNKS)]
    synchronize = getattr(torch, spec.torch_module_name).synchronize
    copies = [torch.empty_like(chunk) for chunk in chunks]
    move = operations.Move(list(range(0, blocks * 2, 2)), direction)
    own = partial(operations.transfer, ops, cache, chunks, move)
    baseline = partial(operations.transfer, torch_ops, cache, chunks, move)
    sources = list(zip(copies, chunks))  # noqa: B905  # same lists

    def copy() -> None:
        for target, source in sources:
            target.copy_(source)

    gigabytes = sum(chunk.numel() * chunk.element_size() for chunk in chunks) / 1e9
    speeds = {
        name: gigabytes / _best_seconds(work, synchronize)
        for name, work in (("own", own), ("baseline", baseline), ("copy", copy))
    }
    text = ", ".join(f"{name} {speed:.2f} GB/s" for name, speed in speeds.items())
    if speeds["own"] < _TOLERANCE * speeds["baseline"]:
        raise Failed(f"slower than the baseline that it replaces: {text}")
    return text


def _best_seconds(work: Callable[[], None], synchronize: Callable[[], None]) -> float:
    seconds = []
    for _ in range(_ROUNDS):
        synchronize()
        started = time.perf_counter()
        work()
        synchronize()
        seconds.append(time.perf_counter() - started)
    return min(seconds)
