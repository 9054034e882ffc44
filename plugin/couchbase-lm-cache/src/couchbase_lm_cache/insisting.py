"""Steps of stores that are repeated: what Couchbase puts off now it may take a moment later.

No thread waits meanwhile. What is final is concluded at once, and the rest comes back to the worker threads
after a pause: one node that is down must cost neither the objects of others nor the threads that store them.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Generic, TypeVar

from couchbase_lm_cache.transport import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from couchbase_lm_cache.connection import Connection
    from couchbase_lm_cache.tallies import Tallies
    from couchbase_lm_cache.tasks import Task
    from couchbase_lm_cache.transport import Transport
    from couchbase_lm_cache.workers import WorkerPool

_Item = TypeVar("_Item")

_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 0.05, 2.0
_UNREACHABLE_PATIENCE_SECONDS = 2.0
"""A node that is down for longer is not waited for: LMCache keeps the memory of the whole task locked meanwhile."""
_PUT_OFF = (Outcome.BUSY, Outcome.CONGESTED, Outcome.LATE)


class Insistence(Generic[_Item]):
    """One step for several items, until each has an outcome that repetition does not change.

    What Couchbase puts off, or is too slow for, is tried until the task's deadline, and is then REVOKED. A
    node that cannot be reached is given up after two seconds, and one that does not answer while others do
    at once.

    Args:
        task: on whose behalf.
        attempt: makes the call for the items that are left.
        conclude: receives items with their final outcomes; each item once, in as many calls as it takes.
        connection: gives the transport and learns from outcomes.
        workers: threads that make the calls.
        tallies: counts repetitions.
    """

    def __init__(
        self,
        task: Task[object],
        attempt: Callable[[Transport, Sequence[_Item]], Sequence[Outcome]],
        conclude: Callable[[Sequence[tuple[_Item, Outcome]]], None],
        *,
        connection: Connection,
        workers: WorkerPool,
        tallies: Tallies,
    ) -> None:
        self._task = task
        self._attempt = attempt
        self._conclude = conclude
        self._connection = connection
        self._workers = workers
        self._tallies = tallies
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        self._unreachable_since: float | None = None

    def run(self, items: Sequence[_Item]) -> None:
        """Make one attempt on this thread, and come back later for what is left."""
        if not items:
            return
        if not self._task.remaining_seconds:
            self._conclude([(item, Outcome.REVOKED) for item in items])
            return
        transport = self._connection.transport()
        if transport is None:
            self._conclude([(item, Outcome.TIMEOUT) for item in items])
            return
        began = time.monotonic()
        answers = self._attempt(transport, items)
        self._connection.note_write(answers, began)
        self._sort(list(zip(items, answers, strict=True)), began)

    def _sort(self, told: Sequence[tuple[_Item, Outcome]], began: float) -> None:
        repeated = self._worth_repeating([outcome for _, outcome in told], began)
        left = [item for item, outcome in told if outcome in repeated]
        final = [(item, outcome) for item, outcome in told if outcome not in repeated]
        if left:
            self._tallies.count("store_retries")
            # Different lengths keep servers that were refused together from coming back together.
            pause = self._pause_seconds * random.uniform(0.5, 1.0)  # noqa: S311 - no secret depends on it
            self._pause_seconds = min(2 * self._pause_seconds, _LAST_PAUSE_SECONDS)
            # Before the conclusion, which may make a call of its own.
            self._workers.put_off(self._task, lambda: self.run(left), pause)
        if final:
            self._conclude(final)

    def _worth_repeating(self, outcomes: Sequence[Outcome], began: float) -> tuple[Outcome, ...]:
        if Outcome.UNREACHABLE not in outcomes:
            self._unreachable_since = None
        else:
            self._unreachable_since = self._unreachable_since or began
        # Where some nodes answer and others do not, a timeout has cost a thread its time, and would again.
        worth = _PUT_OFF if self._connection.is_partial else (*_PUT_OFF, Outcome.TIMEOUT)
        since = self._unreachable_since
        is_patient = since is not None and time.monotonic() - since < _UNREACHABLE_PATIENCE_SECONDS
        return (*worth, Outcome.UNREACHABLE) if is_patient else worth
