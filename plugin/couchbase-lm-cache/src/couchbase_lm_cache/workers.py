"""The threads that make blocking calls to Couchbase on behalf of tasks."""

from __future__ import annotations

import heapq
import itertools
import logging
import queue
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from couchbase_lm_cache.tasks import Task

logger = logging.getLogger(__name__)

_Step = tuple["Task[Any]", "Callable[[], None]", bool]
"""A task, what to do on its behalf, and whether that must be done though the task has ended."""


class WorkerPool:
    """A fixed number of threads and a queue of steps, each on behalf of a task.

    Steps that are put off wait on a thread of their own, which is only started when there are any: none of
    the others stands still for them.

    The threads are daemons: a call that hangs in the SDK until its own timeout must not keep the server
    from stopping.
    """

    def __init__(self, name: str, threads: int) -> None:
        self._steps: queue.SimpleQueue[_Step | None] = queue.SimpleQueue()
        self._clock = _Clock(f"couchbase-lm-{name}-later", self._steps.put)
        self._threads = [
            threading.Thread(target=self._run, name=f"couchbase-lm-{name}-{n}", daemon=True) for n in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, task: Task[Any], step: Callable[[], None]) -> None:
        """Run ``step`` soon, unless ``task`` ends before its turn comes."""
        self._steps.put((task, step, False))

    def put_off(self, task: Task[Any], step: Callable[[], None], delay_seconds: float) -> None:
        """Run ``step`` after a while, but not later than at the task's deadline; also when ``task`` has ended."""
        self._clock.add(time.monotonic() + min(delay_seconds, task.remaining_seconds), (task, step, True))

    def close(self, timeout_seconds: float) -> None:
        """Let the threads end after the steps queued so far, without those put off; wait at most so long."""
        self._clock.close()
        for _ in self._threads:
            self._steps.put(None)
        deadline = time.monotonic() + timeout_seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while (item := self._steps.get()) is not None:
            task, step, is_due_anyway = item
            if task.ended.is_set() and not is_due_anyway:
                continue
            try:
                step()
            except Exception:  # a defect in one step must neither hang its task nor cost the thread
                logger.exception("A step of task %d failed unexpectedly; the task ends with what it has", task.id)
                task.end()
            # A waiting thread must not keep the task's memory objects alive.
            del item, task, step


class _Clock:
    """Hands steps on at their time.

    It holds what is put off by tasks under way, for seconds at most: they bound its size.
    """

    def __init__(self, name: str, hand_on: Callable[[_Step], None]) -> None:
        self._hand_on = hand_on
        self._changed = threading.Condition()
        self._numbers = itertools.count()
        self._heap: list[tuple[float, int, _Step]] = []
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def add(self, moment: float, step: _Step) -> None:
        """Hand ``step`` on at ``moment`` of the monotonic clock; never when closed."""
        with self._changed:
            if self._closed:
                return
            if not self._thread.ident:
                self._thread.start()
            heapq.heappush(self._heap, (moment, next(self._numbers), step))
            self._changed.notify()

    def close(self) -> None:
        """Forget all steps and let the thread end."""
        with self._changed:
            self._closed = True
            self._heap.clear()
            self._changed.notify()

    def _run(self) -> None:
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                while self._heap and self._heap[0][0] <= now:
                    self._hand_on(heapq.heappop(self._heap)[2])
                self._changed.wait(self._heap[0][0] - now if self._heap else None)
