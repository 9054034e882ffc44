"""The threads that make blocking calls to Couchbase on behalf of tasks."""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from couchbase_lm_cache.tasks import Task

logger = logging.getLogger(__name__)


class WorkerPool:
    """A fixed number of threads and a queue of steps, each on behalf of a task.

    The threads are daemons: a call that hangs in the SDK until its own timeout must not keep the server
    from stopping.
    """

    def __init__(self, name: str, threads: int) -> None:
        self._steps: queue.SimpleQueue[tuple[Task[Any], Callable[[], None]] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"couchbase-lm-{name}-{n}", daemon=True) for n in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, task: Task[Any], step: Callable[[], None]) -> None:
        """Run ``step`` soon, unless ``task`` ends before its turn comes."""
        self._steps.put((task, step))

    def close(self, timeout_seconds: float) -> None:
        """Let the threads end after the steps queued so far; wait for them at most so long."""
        for _ in self._threads:
            self._steps.put(None)
        deadline = time.monotonic() + timeout_seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while (item := self._steps.get()) is not None:
            task, step = item
            if task.ended.is_set():
                continue
            try:
                step()
            except Exception:  # a defect in one step must neither hang its task nor cost the thread
                logger.exception("A step of task %d failed unexpectedly; the task ends with what it has", task.id)
                task.end()
            # A waiting thread must not keep the task's memory objects alive.
            del item, task, step
