"""Which resources need a pass, and the workers that run the passes.

A key is a resource's (namespace, name). Adding a key that waits already changes nothing; a key added while
its pass runs is run once more afterwards; so a resource never has two passes at a time (one writer) and no
wake-up is lost. Delays live in a heap with one deadline per key: the earliest wins, and a pass that starts
clears it. Used by one event loop only.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)


class Key(NamedTuple):
    """One resource."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class WorkQueue:
    """Dirty set, in-process set, delayed heap and bounded workers.

    ``clock`` is monotonic seconds. ``handle`` runs one pass and returns the seconds until the next one, or
    None when only a new wake-up may bring the key back; it never raises.
    """

    def __init__(
        self,
        handle: Callable[[Key], Awaitable[float | None]],
        *,
        workers: int,
        clock: Callable[[], float],
    ) -> None:
        self._handle = handle
        self._workers = workers
        self._clock = clock
        self._waiting: asyncio.Queue[Key] = asyncio.Queue()
        self._dirty_since: dict[Key, float] = {}
        self._running: dict[Key, float] = {}
        self._deadlines: dict[Key, float] = {}
        self._heap: list[tuple[float, Key]] = []
        self._heap_changed = asyncio.Event()

    def add(self, key: Key) -> None:
        """Ask for a pass now, or right after the one that runs."""
        if key in self._dirty_since:
            return
        self._dirty_since[key] = self._clock()
        if key not in self._running:
            self._waiting.put_nowait(key)

    def add_after(self, key: Key, delay_seconds: float) -> None:
        """Ask for a pass in ``delay_seconds``, unless an earlier one is due."""
        due = self._clock() + max(delay_seconds, 0.0)
        if due >= self._deadlines.get(key, float("inf")):
            return
        self._deadlines[key] = due
        heapq.heappush(self._heap, (due, key))
        self._heap_changed.set()

    @property
    def depth(self) -> int:
        """Return how many keys wait for a worker."""
        return self._waiting.qsize()

    def oldest_age_seconds(self) -> float:
        """Return how long the oldest key has waited for a worker, or its pass has been running."""
        now = self._clock()
        starts = [since for key, since in self._dirty_since.items() if key not in self._running]
        starts += self._running.values()
        return max((now - start for start in starts), default=0.0)

    async def run(self) -> None:
        """Run the workers until cancelled; a pass that is running then is cancelled too."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._work())
            group.create_task(self._release_delayed())

    async def _work(self) -> None:
        while True:
            key = await self._waiting.get()
            self._dirty_since.pop(key, None)
            self._deadlines.pop(key, None)
            self._running[key] = self._clock()
            delay_seconds = None
            try:
                delay_seconds = await self._handle(key)
            finally:
                del self._running[key]
                if key in self._dirty_since:
                    self._waiting.put_nowait(key)
            if delay_seconds is not None:
                self.add_after(key, delay_seconds)

    async def _release_delayed(self) -> None:
        while True:
            now = self._clock()
            while self._heap and self._heap[0][0] <= now:
                due, key = heapq.heappop(self._heap)
                if self._deadlines.get(key) == due:  # not superseded, not run meanwhile
                    del self._deadlines[key]
                    self.add(key)
            timeout = self._heap[0][0] - now if self._heap else None
            try:
                # not wait_for: before Python 3.12 it may swallow a cancellation that meets the event
                async with asyncio.timeout(timeout):
                    await self._heap_changed.wait()
            except TimeoutError:
                continue
            self._heap_changed.clear()
