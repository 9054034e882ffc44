"""What LMCache-driven mode wants of a backend, and that LMCache refuses it where something is missing."""

from __future__ import annotations

import time
from typing import Any

import torch
from lmcache.v1.multiprocess.transfer_context import create_transfer_context
from lmcache.v1.multiprocess.transfer_mode import MPTransferMode
from lmcache.v1.platform.base.device_spec import DeviceSpec
from lmcache.v1.platform.base.ipc_wrapper import DeviceIPCWrapper

from lmcache_hostcpu.check import paged
from lmcache_hostcpu.check.report import Failed, NotApplicable, tell

TITLE = "LMCache-driven mode"
# A query that polls, or waits for the device, takes longer than this.
_QUERY_SECONDS = 0.05


def check(spec: Any) -> None:
    """Check the capabilities that the chosen backend declares."""
    tell(TITLE, "default mode", lambda: _default_mode(spec))
    if not spec.is_lmcache_driven_available():
        tell(TITLE, "refused where it is not offered", lambda: _refused(spec))
        return
    tell(TITLE, "IPC wrapper", lambda: _wrapper(spec))
    tell(TITLE, "IPC wrapper on the wire", lambda: _wire(spec))
    tell(TITLE, "event backend", lambda: _events(spec))
    tell(TITLE, "events of other devices", lambda: _foreign(spec))
    tell(TITLE, "event order", lambda: _order(spec))
    tell(TITLE, "cache context", lambda: _context(spec))
    tell(TITLE, "host pinning", lambda: _pinning(spec))


def _caches(spec: Any) -> dict[str, torch.Tensor]:
    layout = paged.LAYOUTS[0]
    cache = paged.cache(layout, torch.bfloat16, layers=2, blocks=8, heads=2, head_size=16, seed=3)
    return {f"layer.{number}": tensor for number, tensor in enumerate(cache.clone(spec.device_type).layers)}


def _default_mode(spec: Any) -> str:
    mode = spec.default_mp_transfer_mode()
    if mode not in (MPTransferMode.LMCACHE_DRIVEN, MPTransferMode.ENGINE_DRIVEN):
        raise Failed(f"default_mp_transfer_mode() is {mode!r}; it must be engine_driven or lmcache_driven")
    if mode is MPTransferMode.LMCACHE_DRIVEN and not spec.is_lmcache_driven_available():
        raise Failed("auto means lmcache_driven, which is_lmcache_driven_available() denies: no worker would start")
    return f"auto means {mode.value}"


def _refused(spec: Any) -> str:
    try:
        create_transfer_context(_caches(spec), instance_id=1, req_client=object(), mode="lmcache_driven")
    except ValueError as refusal:
        raise NotApplicable(f"not offered; LMCache says: {refusal}") from None
    raise Failed("is_lmcache_driven_available() is False, yet LMCache has started that mode")


def _wrapper(spec: Any) -> str:
    wrapper_class = spec.ipc_wrapper_cls
    if wrapper_class is None:
        raise Failed("DeviceSpec.ipc_wrapper_cls is None: LMCache refuses the mode for want of a wrapper factory")
    if not issubclass(wrapper_class, DeviceIPCWrapper) or not callable(getattr(wrapper_class, "wrap", None)):
        raise Failed(f"{wrapper_class.__qualname__} is not a DeviceIPCWrapper with a class method wrap(tensor)")
    return f"{wrapper_class.__qualname__}"


def _wire(spec: Any) -> str:
    """Send a wrapped tensor the way of the wire; only classes that LMCache lists get through."""
    tensor = next(iter(_caches(spec).values()))
    expected = tensor.clone()
    wrapped = spec.ipc_wrapper_cls.wrap(tensor)
    try:
        received = DeviceIPCWrapper.Deserialize(DeviceIPCWrapper.Serialize(wrapped))
    except (ValueError, KeyError, NotImplementedError) as error:
        raise Failed(
            f"{type(wrapped).__qualname__} does not cross the wire: {type(error).__name__} {error}.\n"
            f"wrap() has to return one of the classes in lmcache.v1.platform.base.ipc_wire.WRAPPER_TYPES"
        ) from error
    if spec.device_type != "cpu":
        return f"{type(wrapped).__qualname__} is encoded and decoded; mapping needs a second process"
    if not paged.same(received.to_tensor(), expected):
        raise Failed("the tensor that the receiver maps has other bytes than the one that was wrapped")
    return f"{type(wrapped).__qualname__} is encoded, decoded and mapped with the same bytes"


def _events(spec: Any) -> str:
    backend = spec.event_ipc_backend
    if backend is None:
        raise Failed("DeviceSpec.event_ipc_backend is None: nothing would order the server's reads after the writes")
    if spec.event_ipc_backend is not backend:
        raise Failed("DeviceSpec.event_ipc_backend gives another object each time; futures ask often: keep the first")
    device = torch.device(spec.device_type)
    backend.check_event_support(device)
    return f"{type(backend).__qualname__}, one object"


def _foreign(spec: Any) -> str:
    other = torch.device("cpu" if spec.device_type != "cpu" else "meta")
    try:
        spec.event_ipc_backend.check_event_support(other)
    except RuntimeError as refusal:
        return f"refused: {refusal}"
    raise NotApplicable(f"check_event_support({other}) does not raise; LMCache asks the backend of each device only")


def _order(spec: Any) -> str:
    """Export and import an event and see that a query comes back at once."""
    backend, device = spec.event_ipc_backend, torch.device(spec.device_type)
    event = backend.create_event(device)
    stream = getattr(torch, spec.torch_module_name).current_stream()
    backend.record_event(event, stream)
    handle = backend.export_event(event, device)
    if not isinstance(handle, bytes) or not handle:
        raise Failed(
            f"export_event gives {handle!r}; the wire carries bytes, and empty ones mean that no work was done"
        )
    started = time.perf_counter()
    backend.query_event(event)
    seconds = time.perf_counter() - started
    if seconds > _QUERY_SECONDS:
        raise Failed(f"query_event took {seconds * 1000:.0f} ms; it must not block, futures poll it")
    backend.synchronize_event(event, device)
    if not backend.query_event(event):
        raise Failed("query_event is False after synchronize_event")
    if spec.device_type == "cpu":
        backend.wait_event(backend.import_event(handle, device), stream)
    return f"recorded, exported in {len(handle)} bytes, queried in {seconds * 1e6:.0f} µs"


def _context(spec: Any) -> str:
    if type(spec).create_cache_context is DeviceSpec.create_cache_context:
        raise Failed("DeviceSpec.create_cache_context is not overridden: the server cannot map a worker's cache")
    return "created by the backend; used in the transfers below"


def _pinning(spec: Any) -> str:
    buffer = torch.zeros(1 << 20, dtype=torch.uint8)
    pinned = spec.pin_memory(buffer.data_ptr(), buffer.numel())
    if not isinstance(pinned, bool):
        raise Failed(f"pin_memory gives {pinned!r} instead of True or False")
    if not pinned:
        raise NotApplicable("not pinned here; staging buffers are then pageable, which costs speed only")
    if not spec.unpin_memory(buffer.data_ptr()):
        raise Failed("unpin_memory does not undo pin_memory")
    return "host memory is pinned and released"
