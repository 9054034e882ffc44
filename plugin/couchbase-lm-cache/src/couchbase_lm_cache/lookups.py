"""Lookups: which of many objects are in the bucket, asked for all at once."""

from __future__ import annotations

import time
from functools import partial
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

    def start(self, task: Task[object], keys: Sequence[str], found: list[bool]) -> None:
        """Set ``found[i]`` for every key that exists and end ``task`` when all have been asked for.

        There is no cut at the first miss: objects of sliding-window layers are needed without the ones
        before them.
        """
        starts = range(0, len(keys), _KEYS_PER_CALL)
        settle = Countdown(len(starts), task.end)
        for start in starts:
            self._workers.submit(task, partial(self._ask, task, keys, start, found, settle))

    def _ask(self, task: Task[object], keys: Sequence[str], start: int, found: list[bool], settle: Countdown) -> None:
        transport = self._connection.transport()
        if transport is not None:
            asked = keys[start : start + _KEYS_PER_CALL]
            began = time.monotonic()
            outcomes = transport.exists(asked, min(self._connection.lookup_timeout_seconds, task.remaining_seconds))
            self._connection.note(outcomes, began)
            for offset, outcome in enumerate(outcomes):
                found[start + offset] = outcome is Outcome.OK
            self._refresher.hit(key for key, outcome in zip(asked, outcomes, strict=True) if outcome is Outcome.OK)
        settle.one_done()
