"""Visits to Couchbase: what is asked there runs beside the passes, so that a silent cluster holds no worker.

A visit executes the steps that a pass decided, then looks. It writes nothing to Kubernetes: a pass that finds it
ended tells what came of it and decides what follows. So each resource keeps one writer, and one visit at a time.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from couchbase_lm_operator.core.couchbase.provisioning import wants_look_after
from couchbase_lm_operator.core.couchbase_state import CouchbaseTrouble, Trouble
from couchbase_lm_operator.tasks import end

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from couchbase_lm_operator.core.couchbase.provisioning import ProvisioningDecision
    from couchbase_lm_operator.core.couchbase.provisioning_trouble import StepFailure
    from couchbase_lm_operator.core.couchbase_state import BucketRecord, CouchbaseState
    from couchbase_lm_operator.io.couchbase.cluster import CouchbaseCluster
    from couchbase_lm_operator.work_queue import Key

logger = logging.getLogger(__name__)

_Where = tuple[str, tuple[str, ...]]

PATIENCE_SECONDS = 3.0
"""How long one pass waits for its visits altogether."""
DEADLINE_SECONDS = 45.0
"""The longest that a visit takes, whatever Couchbase does: some ten dead addresses, or the shutdown of a bucket."""
SLOW_SECONDS = 900.0
"""How long a cluster that nobody visits is remembered to be slow: longer than the pause between two tries."""
FRESH_SECONDS = 15.0
"""How long what a visit saw may be acted upon."""


@dataclass(frozen=True)
class Finding:
    """What a visit brought: ``outcome`` is what stopped its steps, ``seen`` the look after them.

    After steps that were stopped there is a look only when the record depends on it.

    ``ended_at`` is the time of the event loop.
    """

    outcome: StepFailure | CouchbaseTrouble | None
    seen: CouchbaseState | CouchbaseTrouble | None
    ended_at: float

    @property
    def is_fresh(self) -> bool:
        """Say whether it still tells how things are."""
        return asyncio.get_running_loop().time() - self.ended_at < FRESH_SECONDS


@dataclass(frozen=True, eq=False)
class Visit:
    """One visit; ``decision`` is the one whose steps it executes, None when it only looks.

    ``before`` is the record that the decision was made upon. ``is_orphan`` says that the resource it was made for is
    gone, and another of its name there: its end is waited for, and means nothing to that one.
    """

    couchbase: CouchbaseCluster
    decision: ProvisioningDecision | None
    before: BucketRecord | None
    task: asyncio.Task[Finding]
    is_orphan: bool = False

    def is_for(self, couchbase: CouchbaseCluster) -> bool:
        """Say whether what it brings answers this question."""
        return not self.is_orphan and self.couchbase.asks_same(couchbase)

    async def has_ended(self, until: float) -> bool:
        """Wait for its end up to a time of the event loop, and say whether it has come."""
        await asyncio.wait({self.task}, timeout=max(until - asyncio.get_running_loop().time(), 0.0))
        return self.task.done()

    def when_ended(self, call: Callable[[], None]) -> None:
        """Call once it has ended, but not when it is given up."""
        self.task.add_done_callback(lambda task: None if task.cancelled() else call())


@dataclass
class _Place:
    """One cluster: at most so many visits at a time. ``is_slow`` says that it kept the last one waiting.

    ``visits`` are under way or wait for their turn; the last ended at ``left_at``, a time of the event loop.
    """

    slots: asyncio.Semaphore
    is_slow: bool = False
    visits: int = 0
    left_at: float = 0.0

    def note_slow(self) -> None:
        self.is_slow = True

    def is_over(self, now: float) -> bool:
        return not self.visits and (not self.is_slow or now - self.left_at >= SLOW_SECONDS)


@dataclass(frozen=True)
class Visits:
    """Starts visits, ``per_cluster`` at most to the same Couchbase; ``wake`` asks for a pass over a resource.

    ``patient_passes`` is how many passes may wait for visits at the same time, at least one: only when there are more
    workers than that do others go on meanwhile.
    """

    per_cluster: int
    patient_passes: int
    wake: Callable[[Key], None]
    deadline_seconds: float = DEADLINE_SECONDS
    _places: dict[_Where, _Place] = field(init=False, default_factory=dict)
    _tasks: set[asyncio.Task[Finding]] = field(init=False, default_factory=set)
    _patient: set[object] = field(init=False, default_factory=set)

    @property
    def place_count(self) -> int:
        """Return how many clusters are remembered."""
        return len(self._places)

    @contextmanager
    def patience(self, couchbase: CouchbaseCluster) -> Iterator[float]:
        """Give the time of the event loop up to which a pass waits: now, if it would wait for others or in vain."""
        now, place, waiter = asyncio.get_running_loop().time(), self._places.get(_where(couchbase)), object()
        is_in_vain = place is not None and (place.is_slow or place.slots.locked())
        if is_in_vain or len(self._patient) >= self.patient_passes:
            yield now
            return
        self._patient.add(waiter)
        try:
            yield now + PATIENCE_SECONDS
        finally:
            self._patient.discard(waiter)

    def look(self, couchbase: CouchbaseCluster) -> Visit:
        """Start a visit that only looks."""
        return Visit(couchbase, None, None, self._start(couchbase, None, None))

    def execute(
        self, couchbase: CouchbaseCluster, decision: ProvisioningDecision, before: BucketRecord | None
    ) -> Visit:
        """Start a visit that executes what was decided; the record of the decision is in status by now."""
        return Visit(couchbase, decision, before, self._start(couchbase, decision, before))

    async def close(self) -> None:
        """Give up all visits."""
        for task in await end(self._tasks):
            logger.error("a visit to Couchbase does not end", extra={"task": task.get_name()})

    @contextmanager
    def _visiting(self, couchbase: CouchbaseCluster) -> Iterator[_Place]:
        where, loop = _where(couchbase), asyncio.get_running_loop()
        place = self._places.setdefault(where, _Place(asyncio.Semaphore(self.per_cluster)))
        place.visits += 1
        try:
            yield place
        finally:
            place.visits -= 1
            place.left_at = loop.time()
            for each in [each for each, there in self._places.items() if there.is_over(place.left_at)]:
                del self._places[each]

    def _start(
        self, couchbase: CouchbaseCluster, decision: ProvisioningDecision | None, before: BucketRecord | None
    ) -> asyncio.Task[Finding]:
        visit = self._visit(couchbase, decision, before)
        task = asyncio.get_running_loop().create_task(visit, name="visit to Couchbase")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _visit(
        self, couchbase: CouchbaseCluster, decision: ProvisioningDecision | None, before: BucketRecord | None
    ) -> Finding:
        loop = asyncio.get_running_loop()
        with self._visiting(couchbase) as place:
            async with place.slots:
                tells_slow = loop.call_later(PATIENCE_SECONDS, place.note_slow)
                started = loop.time()
                try:
                    outcome, seen = await self._talk(couchbase, decision, before)
                finally:
                    tells_slow.cancel()
                if loop.time() - started < PATIENCE_SECONDS:
                    place.is_slow = False
        return Finding(outcome, seen, loop.time())

    async def _talk(
        self, couchbase: CouchbaseCluster, decision: ProvisioningDecision | None, before: BucketRecord | None
    ) -> tuple[StepFailure | CouchbaseTrouble | None, CouchbaseState | CouchbaseTrouble | None]:
        outcome: StepFailure | CouchbaseTrouble | None = None
        is_executing = decision is not None
        try:
            async with asyncio.timeout(self.deadline_seconds):
                if decision is not None:
                    outcome = await couchbase.execute(decision.steps)
                    is_executing = False
                    if outcome is not None and not wants_look_after(decision, before, outcome):
                        return outcome, None
                return outcome, await couchbase.read()
        except TimeoutError:
            trouble = CouchbaseTrouble(Trouble.UNREACHABLE, self._too_slow(couchbase))
            return (trouble, None) if is_executing else (outcome, trouble)

    def _too_slow(self, couchbase: CouchbaseCluster) -> str:
        return (
            f"Couchbase at {couchbase.goal.connection_string} is too slow: {self.deadline_seconds:.0f} s were not "
            "enough for what is asked of it. Check its load, the addresses behind spec.couchbase.connectionString and "
            "managementEndpoints, and network policies."
        )


def _where(couchbase: CouchbaseCluster) -> _Where:
    # Not by connection string alone: endpoints of one resource's own must not hold up others at that cluster.
    return couchbase.goal.connection_string, couchbase.goal.management_urls
