"""Guarded access to L1 memory.

LMCache owns the memory behind a task's objects and takes it back when the task ends: after its deadline,
when it unlocks keys whose load it gave up, and when the server stops. Every byte that is read from or
written to that memory therefore passes through :class:`GuardedBuffer`, whose lock is taken by whoever
ends the task before anybody else may reuse the memory. After :meth:`GuardedBuffer.revoke` has returned,
no access is under way and none can begin.
"""

from __future__ import annotations

import threading

from couchbase_lm_cache.errors import BufferRevokedError


class GuardedBuffer:
    """The memory of one object, usable until revoked.

    Args:
        view: writable, contiguous memory of the object; any item format.
    """

    __slots__ = ("_lock", "_view", "size_bytes")

    def __init__(self, view: memoryview) -> None:
        self._lock = threading.Lock()
        self._view: memoryview | None = view.cast("B")
        self.size_bytes = len(self._view)

    def open(self) -> GuardedBuffer:
        """Give the memory to the caller, who holds up everybody that wants to end the task: ``with … as view``.

        Keep the block short, and never wait for the network inside it.

        Raises:
            BufferRevokedError: on entry, when the task has ended.
        """
        return self

    # Once per received piece: a generator in its place would cost several times as much.
    def __enter__(self) -> memoryview:
        self._lock.acquire()
        if self._view is None:
            self._lock.release()
            raise BufferRevokedError("the task that owned this memory has ended")
        return self._view

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def fill(self, start: int, content: bytes) -> None:
        """Copy ``content`` to offset ``start``.

        Raises:
            BufferRevokedError: the task has ended.
            ValueError: ``content`` does not fit at ``start``.
        """
        with self.open() as view:
            view[start : start + len(content)] = content

    def copy(self, start: int, end: int) -> bytes:
        """Return a private copy of the bytes from ``start`` to ``end``.

        Raises:
            BufferRevokedError: the task has ended.
        """
        with self.open() as view:
            return bytes(view[start:end])

    def revoke(self) -> None:
        """Wait for the access under way and end all others. Idempotent."""
        with self._lock:
            self._view = None

    @property
    def is_revoked(self) -> bool:
        """Whether the memory may no longer be touched."""
        return self._view is None
