"""Tasks: every one ends exactly once, at the latest at its deadline, and its memory is revoked first.

LMCache waits for a submitted task without a limit of its own: one that never ends holds a request for
ever. So a task ends by whatever comes first, the work being done, its deadline, or :meth:`TaskTable.close`.
The result is put into the table before the event descriptor is signalled, and handed out once.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from couchbase_lm_cache.transport import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from couchbase_lm_cache.buffers import GuardedBuffer

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

_MAX_UNCLAIMED_RESULTS = 8192
"""LMCache never asks for the results of requests it aborted; the oldest of them are forgotten."""

_LEAST_FOR_A_TURN_SECONDS = 0.1

_task_ids = itertools.count(1)


class Notifier(Protocol):
    """What a table needs of LMCache's event notifier."""

    def notify(self) -> None:
        """Make the descriptor readable."""


class Task(Generic[Result]):
    """One submitted task.

    Args:
        deadline: moment on the monotonic clock at which the task ends by itself.
        buffers: memory that is revoked before the result is worked out.
        verdict: works out the result from what was reached; called once, must not raise.
        publish: receives the task and its result, once.
    """

    def __init__(
        self,
        deadline: float,
        buffers: Sequence[GuardedBuffer],
        verdict: Callable[[], Result],
        publish: Callable[[Task[Result], Result], None],
    ) -> None:
        self.id = next(_task_ids)
        self.deadline = deadline
        self.ended = threading.Event()
        self._buffers = list(buffers)
        self._verdict: Callable[[], Result] | None = verdict
        self._publish = publish
        self._lock = threading.Lock()

    def gets_another_turn(self, outcome: Outcome) -> bool:
        """Whether something with this outcome is tried once more: it waited for a connection, and has time left."""
        return outcome is Outcome.CONGESTED and self.remaining_seconds > _LEAST_FOR_A_TURN_SECONDS

    @property
    def remaining_seconds(self) -> float:
        """Time left until the deadline, never negative; 0 when the task has ended."""
        return 0.0 if self.ended.is_set() else max(0.0, self.deadline - time.monotonic())

    def end(self) -> None:
        """End the task with what was reached so far. Idempotent."""
        with self._lock:
            # Forgotten here: the watch may keep an ended task for as long as an older one goes on.
            verdict, self._verdict = self._verdict, None
            if verdict is None:
                return
            self.ended.set()
            for buffer in self._buffers:
                buffer.revoke()
            self._buffers.clear()
            self._publish(self, verdict())


class Countdown:
    """Calls back once, when the given number of things are done."""

    def __init__(self, count: int, done: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._left = count
        self._done = done
        if count == 0:
            done()

    def one_done(self) -> None:
        """Report one of them."""
        self.some_done(1)

    def some_done(self, count: int) -> None:
        """Report some of them."""
        with self._lock:
            self._left -= count
            last = self._left == 0 and count > 0
        if last:
            self._done()


class DeadlineWatch:
    """One thread that ends tasks whose deadline has come."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._heap: list[tuple[float, int, Task[object]]] = []
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="couchbase-lm-deadlines", daemon=True)
        self._thread.start()

    def add(self, task: Task[Result]) -> None:
        """End ``task`` at its deadline unless it has ended before."""
        with self._changed:
            heapq.heappush(self._heap, (task.deadline, task.id, task))  # type: ignore[misc]
            if self._heap[0][1] == task.id:
                self._changed.notify()

    def close(self) -> None:
        """Stop watching; tasks still open are the caller's."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed and not self._due():
                    wait = self._heap[0][0] - time.monotonic() if self._heap else None
                    self._changed.wait(wait)
                if self._closed:
                    return
                task = heapq.heappop(self._heap)[2]
            try:
                task.end()
            except Exception:  # every other task relies on this thread
                logger.exception("Task %d could not be ended at its deadline", task.id)

    def _due(self) -> bool:
        # Tasks that ended early leave when they get to the front; nothing hangs on them any more.
        while self._heap and self._heap[0][2].ended.is_set():
            heapq.heappop(self._heap)
        return bool(self._heap) and self._heap[0][0] <= time.monotonic()


class TaskTable(Generic[Result]):
    """The tasks of one kind (store, lookup or load) and their unclaimed results."""

    def __init__(self, notifier: Notifier, watch: DeadlineWatch) -> None:
        self._notifier = notifier
        self._watch = watch
        self._lock = threading.Lock()
        self._open: dict[int, Task[Result]] = {}
        self._results: dict[int, Result] = {}
        self._closed = False
        self._muted = False

    def open(
        self, deadline_seconds: float, buffers: Sequence[GuardedBuffer], verdict: Callable[[], Result]
    ) -> Task[Result]:
        """Register a task; it has ended already when the table is closed."""
        task = Task(time.monotonic() + deadline_seconds, buffers, verdict, self._publish)
        with self._lock:
            closed = self._closed
            self._open[task.id] = task
        if closed:
            task.end()
        else:
            self._watch.add(task)
        return task

    def take(self, task_id: int) -> Result | None:
        """Return the result of an ended task, once; None otherwise."""
        with self._lock:
            return self._results.pop(task_id, None)

    def take_all(self) -> dict[int, Result]:
        """Return all unclaimed results, once."""
        with self._lock:
            results, self._results = self._results, {}
            return results

    def running(self) -> list[Task[Result]]:
        """Return the tasks that have not ended."""
        with self._lock:
            return list(self._open.values())

    def refuse_new(self) -> None:
        """Let every task opened from now on end at once."""
        with self._lock:
            self._closed = True

    def close(self) -> None:
        """Refuse new tasks and end the running ones; the descriptor is not signalled any more afterwards."""
        self.refuse_new()
        for task in self.running():
            task.end()
        with self._lock:
            self._muted = True

    def _publish(self, task: Task[Result], result: Result) -> None:
        with self._lock:
            self._open.pop(task.id, None)
            self._results[task.id] = result
            while len(self._results) > _MAX_UNCLAIMED_RESULTS:
                self._results.pop(next(iter(self._results)))
            # Inside the lock: after close() the descriptor may be closed and its number reused.
            if not self._muted:
                self._notifier.notify()
