"""``torch.hostcpu``: what torch offers for an accelerator, for the host CPU.

LMCache reaches the chosen device only through this module: the prerequisites of a backend (availability, current
device, synchronisation) and the streams and events that its server uses. Work of the host runs to its end in the
thread that asks for it. So a stream has nothing queued, and an event is complete as soon as it is recorded.
"""

from __future__ import annotations

import itertools
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace

import torch

from lmcache_hostcpu import BACKEND_NAME

_HANDLE_PREFIX = b"hostcpu-event-1:"
# LMCache's own CPU backend, in a process where this one is not chosen. Its events are complete once exported, too.
_STUB_HANDLE = b"stub_ipc_handle"
_event_numbers = itertools.count(1)


def install() -> None:
    """Make this module ``torch.hostcpu``; again is harmless."""
    module = sys.modules[__name__]
    if getattr(torch, BACKEND_NAME, None) is not module:
        setattr(torch, BACKEND_NAME, module)


class Stream:
    """A stream of the host: whatever was submitted to it is done."""

    ptr = 0
    """The native handle; LMCache hands it to recorders, which ignore it on the host."""
    cuda_stream = 0

    def __init__(self, device: object = "cpu", priority: int = 0) -> None:
        self.device = device
        self.priority = priority

    def synchronize(self) -> None:
        """Return: nothing is queued."""

    def query(self) -> bool:
        """Return whether everything submitted is done, which it is."""
        return True

    def wait_event(self, event: Event) -> None:
        """Order what follows after ``event``."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Order what follows after ``stream``."""
        stream.synchronize()

    def record_event(self, event: Event | None = None) -> Event:
        """Record ``event``, or a new one, after everything submitted so far."""
        event = event or Event()
        event.record(self)
        return event


class Event:
    """A point in the work of a thread. As in CUDA, one that was never recorded has nothing to wait for."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self.enable_timing = enable_timing
        self.blocking = blocking
        self.interprocess = interprocess
        self.is_recorded = False

    def record(self, stream: Stream | None = None) -> None:  # noqa: ARG002
        """Mark what this thread has done so far."""
        self.is_recorded = True

    def wait(self, stream: Stream | None = None) -> None:
        """Return: what was recorded is done."""

    def query(self) -> bool:
        """Return whether what was recorded is done; never blocks."""
        return True

    def synchronize(self) -> None:
        """Return: what was recorded is done."""

    def ipc_handle(self) -> bytes:
        """Return what another process needs to wait for this event.

        Raises:
            RuntimeError: the event cannot be exported. A process that imports it takes it as complete, so one that
                was not recorded yet would let it read memory that is still being written.
        """
        if not self.interprocess:
            raise RuntimeError("torch.hostcpu.Event was not created with interprocess=True: it has no handle")
        if not self.is_recorded:
            raise RuntimeError("torch.hostcpu.Event was not recorded: record it before it is exported")
        return _HANDLE_PREFIX + b"%d:%d" % (os.getpid(), next(_event_numbers))

    @classmethod
    def from_ipc_handle(cls, device: object, handle: bytes) -> Event:
        """Return the event of a handle.

        Raises:
            RuntimeError: the handle is not one of a host CPU; its device might still be at work.
        """
        if handle != _STUB_HANDLE and not handle.startswith(_HANDLE_PREFIX):
            raise RuntimeError(
                f"event handle {handle[:32]!r} on device {device}: not made by a host CPU backend; worker and server "
                f"must run with the same LMCACHE_DEVICE_BACKEND"
            )
        event = cls(interprocess=True)
        event.is_recorded = True
        return event


_stream = Stream()


def is_available() -> bool:
    """Return whether there is a CPU."""
    return True


def is_initialized() -> bool:
    """Return whether :func:`init` is still to be called; it never is."""
    return True


def init() -> None:
    """Prepare the device; the host needs nothing."""


def device_count() -> int:
    """Return the number of devices: the host is one, however many cores and sockets it has."""
    return 1


def current_device() -> int:
    """Return the index of the current device."""
    return 0


def set_device(device: object) -> None:
    """Choose the device; there is one."""


def synchronize(device: object = None) -> None:
    """Wait for the device; the host's work is done when its call returns."""


def empty_cache() -> None:
    """Give cached device memory back; the host keeps none."""


def device(device: object = None) -> AbstractContextManager[None]:  # noqa: ARG001
    """Return a context in which ``device`` is current."""
    return nullcontext()


def stream(stream: Stream | None = None) -> AbstractContextManager[Stream]:
    """Return a context in which ``stream`` is current."""
    return nullcontext(stream or _stream)


def current_stream(device: object = None) -> Stream:  # noqa: ARG001
    """Return the current stream."""
    return _stream


def default_stream(device: object = None) -> Stream:  # noqa: ARG001
    """Return the default stream."""
    return _stream


def set_stream(stream: Stream) -> None:
    """Choose the current stream; they are all alike."""


def get_device_properties(device: object = 0) -> SimpleNamespace:  # noqa: ARG001
    """Return name, memory in bytes, cores and identity of the host."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0))
    return SimpleNamespace(
        name="Host CPU", major=0, minor=0, total_memory=memory_bytes, multi_processor_count=cores, uuid=BACKEND_NAME
    )
