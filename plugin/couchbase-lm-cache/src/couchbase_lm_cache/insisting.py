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
PATIENCE_SECONDS = 10.0
"""What is not stored now is never stored, so a store waits for a restart, a failover or a machine that stands still.

No longer: LMCache keeps the memory of the whole task locked meanwhile. It would keep the newest chunks anyway."""
_LEAST_PATIENCE_SECONDS = 2.0
"""While one node has been down for long, another may be out of reach for a moment."""
_PUT_OFF = (Outcome.BUSY, Outcome.CONGESTED, Outcome.LATE)


class Patience:
    """How long something waits for nodes that cannot be reached: ten seconds, over all its steps together.

    What begins in the middle of an outage waits for the rest of these ten seconds, and in a long one not at all,
    or two seconds where some nodes answer.
    """

    def __init__(self) -> None:
        self._began: float | None = None

    def lasts(self, began: float, outage_began: float | None, *, is_partial: bool) -> bool:
        """Say whether there is some left, once a node was not reached.

        Args:
            began: moment on the monotonic clock at which the call began that did not reach it.
            outage_began: since when nodes are known not to answer; None where all do, as far as is known.
            is_partial: whether others answer meanwhile.
        """
        if self._began is None:
            self._began = began
        now = time.monotonic()
        since = self._began if outage_began is None else min(self._began, outage_began)
        return now - since < PATIENCE_SECONDS or (is_partial and now - self._began < _LEAST_PATIENCE_SECONDS)


class Insistence(Generic[_Item]):
    """One step for several items, until each has an outcome that repetition does not change.

    What Couchbase puts off, or is too slow for, is tried until the task's deadline, and is then REVOKED. A
    node that cannot be reached, or a cluster that is not available, is given up when the patience of the item
    ends, and a node that does not answer while others do at once.

    Args:
        task: on whose behalf.
        attempt: makes the call for the items that are left; must not itself wait for what is put off.
        conclude: receives items with their final outcomes; each item once, in as many calls as it takes.
        patience_of: gives the patience of an item.
        note: learns from the outcomes of a call that began at the given moment.
        connection: gives the transport.
        workers: threads that make the calls.
        tallies: counts repetitions.
    """

    def __init__(
        self,
        task: Task[object],
        attempt: Callable[[Transport, Sequence[_Item]], Sequence[Outcome]],
        conclude: Callable[[Sequence[tuple[_Item, Outcome]]], None],
        *,
        patience_of: Callable[[_Item], Patience],
        note: Callable[[Sequence[Outcome], float], None],
        connection: Connection,
        workers: WorkerPool,
        tallies: Tallies,
    ) -> None:
        self._task = task
        self._attempt = attempt
        self._conclude = conclude
        self._patience_of = patience_of
        self._note = note
        self._connection = connection
        self._workers = workers
        self._tallies = tallies
        self._pause_seconds = _FIRST_PAUSE_SECONDS

    def run(self, items: Sequence[_Item]) -> None:
        """Make one attempt on this thread, and come back later for what is left."""
        if not items:
            return
        if not self._task.remaining_seconds:
            self._conclude([(item, Outcome.REVOKED) for item in items])
            return
        began = time.monotonic()
        transport = self._connection.transport()
        if transport is None:
            answers: Sequence[Outcome] = [Outcome.UNREACHABLE] * len(items)
        else:
            answers = self._attempt(transport, items)
            self._note(answers, began)
        self._sort(list(zip(items, answers, strict=True)), began)

    def _sort(self, told: Sequence[tuple[_Item, Outcome]], began: float) -> None:
        is_partial, outage_began = self._connection.is_partial, self._connection.outage_began
        # Where some nodes answer and others do not, a timeout has cost a thread its time, and would again.
        put_off = _PUT_OFF if is_partial else (*_PUT_OFF, Outcome.TIMEOUT)
        left: list[_Item] = []
        final: list[tuple[_Item, Outcome]] = []
        for item, outcome in told:
            if outcome in put_off or (
                outcome is Outcome.UNREACHABLE
                and self._patience_of(item).lasts(began, outage_began, is_partial=is_partial)
            ):
                left.append(item)
            else:
                final.append((item, outcome))
        if left:
            self._tallies.count("store_retries")
            # Different lengths keep servers that were refused together from coming back together.
            pause = self._pause_seconds * random.uniform(0.5, 1.0)  # noqa: S311 - no secret depends on it
            self._pause_seconds = min(2 * self._pause_seconds, _LAST_PAUSE_SECONDS)
            # Before the conclusion, which may make a call of its own.
            self._workers.put_off(self._task, lambda: self.run(left), pause)
        if final:
            self._conclude(final)
