"""The connections to one data node: a bounded number, made when needed, and none for a node that is down.

A node that could not be reached is left alone for a while; then one caller tries again while all others
go on failing at once (half-open), so that an outage costs no request more than an instant.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from couchbase_lm_cache.direct.session import Session

_ENOUGH_TO_CONNECT_SECONDS = 0.5
_FIRST_REST_SECONDS, _LAST_REST_SECONDS = 0.1, 2.0


class NodeUnreachableError(Exception):
    """The node could not be connected to a moment ago; the cause is the exception that was met then."""


class NodePool:
    """Lends sessions of one node.

    Args:
        open_session: connects by the given moment (monotonic clock) or raises.
        limit: how many sessions may exist at once.
    """

    def __init__(self, open_session: Callable[[float], Session], limit: int) -> None:
        self._open_session = open_session
        self._free_places = threading.BoundedSemaphore(limit)
        self._lock = threading.Lock()
        self._idle: list[Session] = []
        self._lent: set[Session] = set()
        self._closed = False
        self._rest_seconds = 0.0
        self._rests_until = 0.0
        self._is_trying = False
        self._why: Exception | None = None

    def borrow(self, deadline: float, wait_until: float | None = None) -> Session | None:
        """Lend a session; None when all are in use.

        Args:
            deadline: until then a new one may take to connect (monotonic clock).
            wait_until: until then one of those in use may come back; ``deadline`` where it is left out.

        Raises:
            NodeUnreachableError: the node is down, or the pool is closed.
            Exception: what ``open_session`` raised, to the caller that tried.
        """
        limit = deadline if wait_until is None else wait_until
        if not self._free_places.acquire(timeout=max(0.0, limit - time.monotonic())):
            return None
        try:
            session = self._take_idle() or self._connect(deadline)
        except BaseException:
            self._free_places.release()
            raise
        with self._lock:
            closed = self._closed
            if not closed:
                self._lent.add(session)
        if closed:
            session.close()
            self._free_places.release()
            raise NodeUnreachableError("the transport was closed")
        return session

    def give_back(self, session: Session, *, is_clean: bool) -> None:
        """Take a session back; one that is not clean is disconnected."""
        with self._lock:
            self._lent.discard(session)
            keep = is_clean and not self._closed
            if keep:
                self._idle.append(session)
        if not keep:
            session.close()
        self._free_places.release()

    def close(self) -> None:
        """Disconnect the idle sessions and make the lent ones fail."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for session in self._lent:
                session.stream.abort()
        for session in idle:
            session.close()

    def _take_idle(self) -> Session | None:
        while True:
            with self._lock:
                if self._closed:
                    raise NodeUnreachableError("the transport was closed")
                if not self._idle:
                    return None
                session = self._idle.pop()
            if session.stream.is_silent():
                return session
            # The server has closed it meanwhile, or says something nobody asked for.
            session.close()

    def _connect(self, deadline: float) -> Session:
        with self._attempt(deadline):
            return self._open_session(deadline)

    @contextmanager
    def _attempt(self, deadline: float) -> Iterator[None]:
        began = time.monotonic()
        with self._lock:
            resting = self._rest_seconds > 0 and (self._is_trying or time.monotonic() < self._rests_until)
            if resting:
                raise NodeUnreachableError(str(self._why)) from self._why
            self._is_trying = True
        try:
            yield
        except Exception as error:
            now = time.monotonic()
            if now >= deadline and now - began < _ENOUGH_TO_CONNECT_SECONDS:
                raise  # the caller had too little time left: that says nothing about the node
            with self._lock:
                self._why = error
                self._rest_seconds = min(max(_FIRST_REST_SECONDS, 2 * self._rest_seconds), _LAST_REST_SECONDS)
                self._rests_until = time.monotonic() + self._rest_seconds
            raise
        else:
            with self._lock:
                self._rest_seconds, self._why = 0.0, None
        finally:
            with self._lock:
                self._is_trying = False
