"""Do a backend's operations have the names, the signatures and the results of LMCache's torch baseline?"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from lmcache import lmcache_native
from lmcache.v1.multiprocess.transfer_context.base import _detect_block_transfer_accepts_tensor
from lmcache.v1.platform import torch_ops
from lmcache.v1.platform.base.device_ops import DeviceOps

from lmcache_hostcpu.check import paged
from lmcache_hostcpu.check.report import Failed, NotApplicable, tell

TITLE = "Operations"
TRANSFER = "multi_layer_block_kv_transfer"
_D2H, _H2D = lmcache_native.TransferDirection.D2H, lmcache_native.TransferDirection.H2D
_DTYPES = (torch.uint8, torch.bfloat16, torch.float32)
# More objects than a pointer-only operation takes at once; blocks out of order and with gaps.
_OBJECTS, _BLOCKS_PER_OBJECT, _CACHE_BLOCKS = 3, 2, 16
_BLOCK_IDS = [9, 2, 14, 5, 0, 7]


def check(spec: Any) -> None:
    """Check the operations of the chosen backend."""
    ops = spec.get_ops()
    tell(TITLE, "operations object", lambda: _object(spec, ops))
    tell(TITLE, "names", lambda: _names(ops))
    tell(TITLE, "signatures", lambda: _signatures(ops))
    tell(TITLE, "how chunks are passed", lambda: _mode(ops))
    for layout in paged.LAYOUTS:
        tell(TITLE, f"{layout.name}", lambda layout=layout: _transfers(spec, ops, layout))  # type: ignore[misc]
    tell(TITLE, "lmcache_memcpy_async", lambda: _copies(spec, ops))


def bound(ops: Any) -> dict[str, Callable[..., Any]]:
    """Return the operations that replace those of the baseline, by name."""
    own = {name: getattr(ops, name) for name in vars(ops) if callable(getattr(torch_ops, name, None))}
    for name in (name for name in dir(type(ops)) if not name.startswith("_")):
        replaced = getattr(type(ops), name) is not getattr(DeviceOps, name, None)
        if replaced and callable(getattr(torch_ops, name, None)):
            own.setdefault(name, getattr(ops, name))
    return {name: op for name, op in own.items() if not isinstance(op, type)}


def _object(spec: Any, ops: Any) -> str:
    if not isinstance(ops, DeviceOps):
        raise Failed(f"DeviceSpec.ops_cls gives {type(ops).__qualname__}, which is not derived from DeviceOps")
    if type(ops).device_type != spec.device_type:
        raise Failed(f"{type(ops).__qualname__}.device_type is {type(ops).device_type!r}, not {spec.device_type!r}")
    if spec.get_ops() is not ops:
        raise Failed("DeviceSpec.get_ops() gives another object each time; do not override it")
    names = ", ".join(sorted(bound(ops))) or "none: everything is LMCache's torch baseline"
    return f"{type(ops).__qualname__}; own operations: {names}"


def _names(ops: Any) -> str:
    known = set(dir(DeviceOps)) | set(dir(torch_ops)) | set(dir(lmcache_native))
    unknown = sorted(name for name in vars(ops) if not name.startswith("_") and name not in known)
    near = [name for name in unknown if any(_alike(name, other) for other in known)]
    if near:
        raise Failed(f"bound under names that LMCache does not call: {', '.join(near)}; names must be the baseline's")
    if unknown:
        return f"additional, which LMCache's baseline does not have: {', '.join(unknown)}"
    return "every name is one of LMCache's"


def _alike(name: str, other: str) -> bool:
    import difflib

    return not other.startswith("_") and difflib.SequenceMatcher(None, name, other).ratio() > 0.9


def _signatures(ops: Any) -> str:
    opaque = []
    for name, op in bound(ops).items():
        try:
            ours = list(inspect.signature(op).parameters)
        except (TypeError, ValueError):
            opaque.append(name)
            continue
        parameters = inspect.signature(op).parameters.values()
        if any(parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) for parameter in parameters):
            continue  # takes what comes
        theirs = list(inspect.signature(getattr(torch_ops, name)).parameters)
        if ours != theirs:
            raise Failed(f"{name}({', '.join(ours)}) differs from the baseline's ({', '.join(theirs)})")
    return f"as the baseline's{f'; cannot be inspected: {chr(44).join(opaque)}' if opaque else ''}"


def _mode(ops: Any) -> str:
    if _detect_block_transfer_accepts_tensor(getattr(ops, TRANSFER)):
        return "as tensors"
    if TRANSFER not in bound(ops):
        raise NotApplicable("the baseline's")
    return (
        "as pointers: four chunks a call, through page-locked buffers. With 'Tensor' in the annotation of the "
        "parameter lmcache_objects_ptrs LMCache would pass tensors"
    )


def _transfers(spec: Any, ops: Any, layout: paged.Layout) -> str:
    """Compare both directions, element sizes and skipped blocks with the baseline on copies in host memory."""
    if TRANSFER not in bound(ops):
        raise NotApplicable("the baseline's")
    compared = 0
    for number, dtype in enumerate(_DTYPES):
        origin = paged.cache(layout, dtype, layers=3, blocks=_CACHE_BLOCKS, heads=2, head_size=24, seed=100 * number)
        tokens = _BLOCKS_PER_OBJECT * paged.BLOCK_TOKENS
        for direction, skip in ((_D2H, 0), (_H2D, 0), (_H2D, 1), (_H2D, 2)):
            chunks = [origin.chunk(tokens, seed=7 + index) for index in range(_OBJECTS)]
            expected, expected_chunks = origin.clone("cpu"), [chunk.clone() for chunk in chunks]
            transfer(torch_ops, expected, expected_chunks, Move(_BLOCK_IDS, direction, skip))
            actual = origin.clone(spec.device_type)
            transfer(ops, actual, chunks, Move(_BLOCK_IDS, direction, skip))
            getattr(torch, spec.torch_module_name).synchronize()
            pairs = [*zip(actual.layers, expected.layers), *zip(chunks, expected_chunks)]  # noqa: B905  # same lists
            if not all(paged.same(left, right) for left, right in pairs):
                way = "store" if direction == _D2H else f"load, {skip} block(s) skipped"
                raise Failed(f"differs from the torch baseline: {dtype}, {way}, block ids {_BLOCK_IDS}")
            compared += 1
    return f"{compared} transfers, bit for bit the baseline's"


@dataclass(frozen=True)
class Move:
    """Which blocks go which way; ``skip`` blocks at the front of the first chunk stay as they are."""

    block_ids: list[int]
    direction: Any
    skip: int = 0


def transfer(ops: Any, cache: paged.Cache, chunks: list[torch.Tensor], move: Move) -> None:
    """Call an operation the way LMCache's worker does: with tensors, or with pointers if it takes nothing else."""
    operation = getattr(ops, TRANSFER)
    device, tokens = cache.layers[0].device, chunks[0].shape[-2]
    common = (device, move.direction, cache.shape, tokens, cache.layout.engine_format, move.skip)
    if _detect_block_transfer_accepts_tensor(operation):
        operation(cache.layers, chunks, move.block_ids, *common)
        return
    staged = [chunk.pin_memory() for chunk in chunks]
    pointers = np.array([layer.data_ptr() for layer in cache.layers], dtype=np.uint64).view(np.int64)
    ids = torch.tensor(move.block_ids, dtype=torch.int64, device=device)
    operation(torch.from_numpy(pointers).to(device), [chunk.data_ptr() for chunk in staged], ids, *common)
    getattr(torch, device.type).synchronize()
    for chunk, copy in zip(chunks, staged):  # noqa: B905  # same lists
        chunk.copy_(copy)


def _copies(spec: Any, ops: Any) -> str:
    """Copy between host and device and compare; sizes that end between pages and words."""
    if "lmcache_memcpy_async" not in bound(ops):
        raise NotApplicable("the baseline's")
    for size in (1, 4095, (1 << 20) + 3):
        host = paged.noise((size,), torch.uint8, size)
        device = torch.zeros(size, dtype=torch.uint8, device=spec.device_type)
        back = torch.zeros(size, dtype=torch.uint8)
        ops.lmcache_memcpy_async(device.data_ptr(), host.data_ptr(), size, _H2D, 0, 1 << 30)
        ops.lmcache_memcpy_async(back.data_ptr(), device.data_ptr(), size, _D2H, 0, 1 << 30)
        getattr(torch, spec.torch_module_name).synchronize()
        if not paged.same(back, host):
            raise Failed(f"{size} bytes that went to the device and back are not the same")
    return "bytes go to the device and back"
