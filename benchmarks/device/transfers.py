"""Time the transfers of one workload; runs in the engine's environment and prints one JSON line for each round.

All implementations move the same number of bytes between the same two allocations, in the same process, taking turns:
a cache whose blocks are in random order, and a pool of objects one after the other, as LMCache's shared memory is.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from lmcache import lmcache_native
from lmcache.v1.platform import torch_ops
from lmcache.v1.platform.ops_types import PageBufferShapeDesc

from benchmarks.device.workloads import CHUNK_TOKENS, DIRECTIONS, WORKLOADS, Workload
from lmcache_hostcpu import library, native_ops

_TYPE = torch.bfloat16
_SPARE = 2  # times as many blocks in the cache as are transferred
_REPEATS = 20  # of what takes a fraction of the baseline's time, so that each has as many quiet moments


class Buffers:
    """A cache and a pool of objects, and the arguments of a transfer between them."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.blocks_per_chunk = CHUNK_TOKENS // workload.layout.block_tokens
        self.blocks = _SPARE * workload.chunks * self.blocks_per_chunk
        generator = torch.Generator().manual_seed(20260101)
        self.cache = torch.randint(-99, 99, (_SPARE * workload.payload_bytes // 2,), dtype=torch.int16)
        self.pool = torch.zeros(workload.payload_bytes // 2, dtype=torch.int16)
        self.block_ids = torch.randperm(self.blocks, generator=generator).tolist()[
            : workload.chunks * self.blocks_per_chunk
        ]

    def arguments(self, direction: str) -> list[Any]:
        """Everything that ``multi_layer_block_kv_transfer`` takes, in order."""
        workload = self.workload
        directions = lmcache_native.TransferDirection
        return [
            list(self.cache.view(_TYPE).view(workload.layers, *self._layer_shape()).unbind(0)),
            list(self.pool.view(_TYPE).view(workload.chunks, *self._object_shape()).unbind(0)),
            self.block_ids,
            torch.device("cpu"),
            directions.D2H if direction == "store" else directions.H2D,
            self._shape_desc(),
            CHUNK_TOKENS,
            getattr(lmcache_native.EngineKVFormat, workload.layout.format),
            0,
        ]

    def copies(self, direction: str) -> tuple[Callable[[], object], Callable[[], object]]:
        """Copy the payload from end to end: with torch, and with the library's threads."""
        ends = [self.pool, self.cache[: len(self.pool)]]
        target, source = ends if direction == "store" else reversed(ends)
        addresses = (target.data_ptr(), source.data_ptr(), self.workload.payload_bytes)
        return (lambda: target.copy_(source)), (lambda: library.load().copy(*addresses))

    def _layer_shape(self) -> tuple[int, ...]:
        workload, tokens = self.workload, self.workload.layout.block_tokens
        heads, elements = workload.heads, workload.head_elements
        return {
            "NL_X_TWO_NB_BS_NH_HS": (2, self.blocks, tokens, heads, elements),
            "NL_X_TWO_NB_NH_BS_HS": (2, self.blocks, heads, tokens, elements),
            "NL_X_NB_NH_BS_CS": (self.blocks, heads, tokens, 2 * elements),
            "NL_X_NB_BS_HS": (self.blocks, tokens, elements),
        }[workload.layout.format]

    def _object_shape(self) -> tuple[int, ...]:
        workload = self.workload
        row = workload.heads * workload.head_elements
        if workload.is_mla:
            return (workload.layers, CHUNK_TOKENS, row)
        if workload.layout.format.endswith("CS"):
            return (workload.layers, CHUNK_TOKENS, 2 * row)
        return (2, workload.layers, CHUNK_TOKENS, row)

    def _shape_desc(self) -> PageBufferShapeDesc:
        workload, shape = self.workload, PageBufferShapeDesc()
        is_one_plane = workload.is_mla or workload.layout.format.endswith("CS")
        shape.kv_size = 1 if is_one_plane else 2
        shape.nl, shape.nb, shape.bs, shape.nh = (
            workload.layers,
            self.blocks,
            workload.layout.block_tokens,
            workload.heads,
        )
        shape.hs = workload.head_elements * (2 if is_one_plane and not workload.is_mla else 1)
        shape.element_size, shape.block_stride_elems, shape.dtype = workload.element_bytes, 0, _TYPE
        return shape


def check(buffers: Buffers) -> None:
    """Store and load natively and with the baseline, and compare all bytes; nothing that differs is measured.

    Raises:
        RuntimeError: they differ, or the native transfer was left to the baseline.
    """
    for direction in DIRECTIONS:
        target = buffers.pool if direction == "store" else buffers.cache
        before = target.clone()
        torch_ops.multi_layer_block_kv_transfer(*buffers.arguments(direction))
        expected = target.clone()
        target.copy_(before)
        copied_before = library.load().copied_bytes()
        native_ops.multi_layer_block_kv_transfer(*buffers.arguments(direction))
        moved = library.load().copied_bytes() - copied_before
        if moved != buffers.workload.payload_bytes or not torch.equal(target, expected):
            raise RuntimeError(f"{buffers.workload}: the native {direction} differs from the baseline's")


def time_round(buffers: Buffers, direction: str, turn: int) -> dict[str, float]:
    """Run every implementation, beginning with another one each time; returns the seconds of its fastest call."""
    with_torch, with_library = buffers.copies(direction)
    arguments = buffers.arguments(direction)
    calls: list[tuple[str, Callable[[], object]]] = [
        ("native", lambda: native_ops.multi_layer_block_kv_transfer(*arguments)),
        ("copy", with_torch),
        ("native", lambda: native_ops.multi_layer_block_kv_transfer(*arguments)),  # as often as both copies together
        ("copy", with_library),
        ("torch", lambda: torch_ops.multi_layer_block_kv_transfer(*arguments)),
    ]
    seconds: dict[str, float] = {}
    for repeat in range(_REPEATS):
        for place in range(len(calls)):
            name, call = calls[(turn + repeat + place) % len(calls)]
            if name == "torch" and repeat:
                continue
            started = time.perf_counter()
            call()
            seconds[name] = min(time.perf_counter() - started, seconds.get(name, float("inf")))
    return seconds


def main() -> int:
    """Measure what was asked for and print each round."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.device.transfers", description=__doc__)
    parser.add_argument("number", type=int, help="of the workload")
    parser.add_argument("rounds", type=int)
    arguments = parser.parse_args()
    buffers = Buffers(WORKLOADS[arguments.number])
    check(buffers)
    for turn in range(arguments.rounds):
        for direction in DIRECTIONS:
            line = {"direction": direction, "seconds": time_round(buffers, direction, turn)}
            sys.stdout.write(json.dumps(line) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
