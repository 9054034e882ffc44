"""Lookups: which of many objects are in the bucket, asked for all at once.

Lookups that wait for a thread are asked together: while a data node keeps calls waiting, their number must not
grow with that of the requests. None is worth a long wait, as every request stands still for its own.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from couchbase_lm_cache.tasks import Countdown
from couchbase_lm_cache.transport import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from couchbase_lm_cache.connection import Connection
    from couchbase_lm_cache.expiry import ExpiryRefresher
    from couchbase_lm_cache.tasks import Task
    from couchbase_lm_cache.workers import WorkerPool

_KEYS_PER_CALL = 512


class Lookups:
    """Runs lookup tasks.

    Args:
        connection: gives the transport and learns from outcomes.
        workers: threads that make the calls; not shared with loads, whose calls take longer.
        refresher: told of every hit.
    """

    def __init__(self, connection: Connection, workers: WorkerPool, refresher: ExpiryRefresher) -> None:
        self._connection = connection
        self._workers = workers
        self._refresher = refresher
        self._lock = threading.Lock()
        self._waiting: deque[_Question] = deque()

    def start(self, task: Task[object], keys: Sequence[str], found: list[bool]) -> None:
        """Set ``found[i]`` for every key that exists and end ``task`` when all have been asked for.

        There is no cut at the first miss: objects of sliding-window layers are needed without the ones
        before them.
        """
        now = time.monotonic()
        starts = range(0, len(keys), _KEYS_PER_CALL)
        settle = Countdown(len(starts), task.end)
        for start in starts:
            places = range(start, min(start + _KEYS_PER_CALL, len(keys)))
            self._put(_Question(task, keys, places, found, settle, now))

    def _put(self, question: _Question) -> None:
        with self._lock:
            self._waiting.append(question)
        self._workers.submit(question.task, self._serve)

    def _serve(self) -> None:
        """Ask what waits, until nothing does: the step of a task that has ended is not run."""
        while questions := self._take():
            self._answer(questions)

    def _take(self) -> list[_Question]:
        """Take the questions that go into one call, the oldest first."""
        taken: list[_Question] = []
        held = 0
        with self._lock:
            while self._waiting and (not taken or held + len(self._waiting[0].places) <= _KEYS_PER_CALL):
                question = self._waiting.popleft()
                if not question.task.ended.is_set():
                    taken.append(question)
                    held += len(question.places)
        return taken

    def _answer(self, questions: Sequence[_Question]) -> None:
        limit_seconds = self._connection.lookup_timeout_seconds
        now = time.monotonic()
        asked, again = [], []
        for question in questions:
            if now - question.began < limit_seconds:
                asked.append(question)
            else:
                question.settle.one_done()
        try:
            again = self._ask(asked, limit_seconds)
        finally:
            for question in asked:
                if question not in again:
                    question.settle.one_done()
        for question in again:
            self._put(question)

    def _ask(self, questions: Sequence[_Question], limit_seconds: float) -> list[_Question]:
        """Make one call for all; return the questions, with the places left, that wait for another turn."""
        transport = self._connection.transport()
        if transport is None or not questions:
            return []
        keys = list(dict.fromkeys(key for question in questions for key in question.asked()))
        began = time.monotonic()
        left_seconds = max(question.task.remaining_seconds for question in questions)
        outcomes = transport.exists(keys, min(limit_seconds, left_seconds))
        self._connection.note(outcomes, began)
        self._refresher.hit(key for key, outcome in zip(keys, outcomes, strict=True) if outcome is Outcome.OK)
        told = dict(zip(keys, outcomes, strict=True))
        return [question for question in questions if self._settle(question, told)]

    def _settle(self, question: _Question, told: dict[str, Outcome]) -> bool:
        """Note what was found; say whether the rest, which no node was asked for, gets another turn."""
        outcomes = [told[key] for key in question.asked()]
        for place, outcome in zip(question.places, outcomes, strict=True):
            question.found[place] = outcome is Outcome.OK
        if Outcome.CONGESTED not in outcomes or self._connection.is_partial:
            return False  # in the latter case connections are in use because their node does not answer
        left = [
            place
            for place, outcome in zip(question.places, outcomes, strict=True)
            if question.task.gets_another_turn(outcome)
        ]
        question.places = left or question.places
        return bool(left)


@dataclass(eq=False)
class _Question:
    """A part of a lookup that goes into one call.

    Attributes:
        places: of the keys to ask for, among ``keys`` and ``found``.
        began: moment on the monotonic clock at which the lookup began. One that has waited for as long as
            a call may take is a miss.
    """

    task: Task[object]
    keys: Sequence[str]
    places: Sequence[int]
    found: list[bool]
    settle: Countdown
    began: float

    def asked(self) -> list[str]:
        """Return the keys at the places."""
        return [self.keys[place] for place in self.places]
