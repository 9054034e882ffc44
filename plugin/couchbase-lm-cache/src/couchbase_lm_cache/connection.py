"""Keeps one usable transport: connects in the background, probes it, replaces it when credentials change.

The state decides what happens to the adapter's tasks. Only while it is *ready* do they talk to Couchbase;
otherwise they end at once as misses, so that an outage costs a request nothing but its cache. The probe
goes on meanwhile and brings the state back by itself.

Calls without an answer are a reason to probe at once, but only the probe, which meets every data node, tells
an outage from one node that is down: that costs what is on it, and nothing else.
"""

from __future__ import annotations

import enum
import logging
import threading
import time
from typing import TYPE_CHECKING

from couchbase_lm_cache.errors import ConnectError, CredentialsError
from couchbase_lm_cache.transport import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from couchbase_lm_cache.credentials import Credentials, CredentialSource
    from couchbase_lm_cache.settings import CouchbaseLMCacheConfig
    from couchbase_lm_cache.transport import Transport

logger = logging.getLogger(__name__)

PROBE_INTERVAL_SECONDS = 5.0
_OUTAGE_PROBE_INTERVAL_SECONDS = 1.0
_PROBE_TIMEOUT_SECONDS = 2.0
_LEAST_BETWEEN_PROBES_SECONDS = 0.2
_SILENCE_WITHOUT_PROBE_SECONDS = 10.0
"""After so much silence calls decide by themselves: the probe must be waiting for an attempt to connect."""
_SUSPECT_CALL_TIMEOUT_SECONDS = 2.0
_PARTIAL_LOOKUP_TIMEOUT_SECONDS = 0.5
_ENOUGH_TO_ANSWER_SECONDS = 1.0
_RECONNECT_AFTER_OUTAGE_SECONDS = 30.0
_FIRST_BACKOFF_SECONDS, _LAST_BACKOFF_SECONDS = 0.5, 10.0
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 60.0, 3600.0
"""Pauses between attempts to get the transport that was wished for, while a substitute does the work."""
_ATTEMPT_SHARE = 0.8
"""Part of ``connect_timeout_seconds`` for one attempt: it must fail, and say why, before a strict start gives up."""
_CALLS_WITHOUT_ANSWER = 2
"""So many calls in a row in which no document got an answer are needed to go without the probe."""

_NO_ANSWER = (Outcome.TIMEOUT, Outcome.UNREACHABLE, Outcome.DENIED)
_NOT_ASKED = (Outcome.REVOKED, Outcome.CONGESTED)
_SAYS_NOTHING = (*_NOT_ASKED, Outcome.BUSY)
"""BUSY may be of our own making: it is also what becomes of calls whose connection was closed or replaced."""
_ALIVE = (Outcome.OK, Outcome.MISSING, Outcome.LATE)


class ConnectionState(enum.Enum):
    """Where the connection stands."""

    CONNECTING = "connecting"
    """Never been connected so far."""
    READY = "ready"
    UNAVAILABLE = "unavailable"
    """Was connected; does not answer, or no longer lets us in."""
    CLOSED = "closed"


class Connection:
    """Owns the transport.

    Args:
        settings: connection settings.
        credentials: read again before every attempt and every probe.
        open_transport: connects within the given seconds or raises ConnectError.
    """

    def __init__(
        self,
        settings: CouchbaseLMCacheConfig,
        credentials: CredentialSource,
        open_transport: Callable[[CouchbaseLMCacheConfig, Credentials, float], Transport],
    ) -> None:
        self._settings = settings
        self._credentials = credentials
        self._open_transport = open_transport
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._changed = threading.Condition(self._lock)
        self._state = ConnectionState.CONNECTING
        self._transport: Transport | None = None
        self._used: Credentials | None = None
        self._retired: list[tuple[float, Transport]] = []
        self._reason = "not connected yet"
        self._last_refusal = ""
        self._is_suspect = False
        self._write_denied = False
        self._unanswered_calls = 0
        self._silent_since = 0.0
        self._heard_at = 0.0
        self._outage_began: float | None = time.monotonic()
        self._reconnect_at = 0.0
        self._retry_pause_seconds = FIRST_RETRY_SECONDS
        self._retry_at = 0.0
        self._probed_at: float | None = None
        self._thread = threading.Thread(target=self._run, name="couchbase-lm-connection", daemon=True)

    def start(self) -> None:
        """Begin to connect in the background."""
        self._thread.start()

    def wait_ready(self, timeout_seconds: float) -> None:
        """Wait for the first connection.

        Raises:
            ConnectError: there was none in time; the message holds the latest cause.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._state is not ConnectionState.CONNECTING, timeout_seconds):
                raise ConnectError(
                    f"Couchbase at {self._settings.connection_string} could not be used within "
                    f"{timeout_seconds:g} s: {self._reason}. Set startup: degraded to serve without it meanwhile"
                )

    def transport(self) -> Transport | None:
        """Return the transport to use now, or None while Couchbase is not available."""
        with self._lock:
            return self._transport if self._state is ConnectionState.READY else None

    @property
    def call_timeout_seconds(self) -> float:
        """Limit of one call: short while some data node does not answer, so that requests do not pile up."""
        limit = self._settings.kv_timeout_seconds
        return min(limit, _SUSPECT_CALL_TIMEOUT_SECONDS) if self.is_partial or self._unanswered_calls else limit

    @property
    def lookup_timeout_seconds(self) -> float:
        """Limit of one lookup call: those wait for every node, and all requests wait for lookups."""
        limit = self.call_timeout_seconds
        if self.is_partial:
            return min(limit, _PARTIAL_LOOKUP_TIMEOUT_SECONDS)
        return min(limit, _SUSPECT_CALL_TIMEOUT_SECONDS) if self._is_suspect else limit

    @property
    def is_partial(self) -> bool:
        """Whether the last probe found nodes that answer beside others that do not."""
        return self._state is ConnectionState.READY and self._outage_began is not None

    @property
    def outage_began(self) -> float | None:
        """Moment on the monotonic clock since when the cluster, or a node of it, is known not to answer; or None."""
        return self._outage_began

    def note(self, outcomes: Sequence[Outcome], began: float) -> None:
        """Learn from a finished call: documents without an answer make the probe look at once.

        Args:
            outcomes: what became of the call's documents.
            began: moment on the monotonic clock at which it was made. A call that a task's deadline cut
                short says nothing about the server.
        """
        self._listen(outcomes, began, _NO_ANSWER)

    def note_write(self, outcomes: Sequence[Outcome], began: float) -> None:
        """Learn from a finished write. A user who may only read must not lose the cache of others for it."""
        denied = Outcome.DENIED in outcomes
        with self._lock:
            news = denied and not self._write_denied
            if denied or Outcome.OK in outcomes:
                self._write_denied = denied
        if news:
            logger.warning("Nothing can be stored: %s", _WRITE_DENIED_REASON)
        self._listen(outcomes, began, (Outcome.TIMEOUT, Outcome.UNREACHABLE))

    def _listen(self, outcomes: Sequence[Outcome], began: float, no_answer: tuple[Outcome, ...]) -> None:
        told = [outcome for outcome in outcomes if outcome not in _SAYS_NOTHING]
        unanswered = {outcome for outcome in told if outcome in no_answer}
        patience = min(_ENOUGH_TO_ANSWER_SECONDS, 0.9 * self._settings.kv_timeout_seconds)
        now = time.monotonic()
        if Outcome.TIMEOUT in unanswered and now - began < patience:
            unanswered.discard(Outcome.TIMEOUT)
            told = [outcome for outcome in told if outcome is not Outcome.TIMEOUT]
        if not told:
            return
        silent = all(outcome in unanswered for outcome in told)
        with self._lock:
            if not silent:
                self._unanswered_calls, self._heard_at = 0, now
            else:
                self._silent_since = self._silent_since if self._unanswered_calls else now
                self._unanswered_calls += 1
            lasting = silent and now - self._silent_since > _SILENCE_WITHOUT_PROBE_SECONDS
            outage = lasting and self._unanswered_calls >= _CALLS_WITHOUT_ANSWER
        if outage:
            self._lose(_DENIED_REASON if unanswered == {Outcome.DENIED} else _SILENT_REASON)
        if unanswered and not self.is_partial:
            self._is_suspect = True
            self._wake.set()

    def status(self) -> dict[str, object]:
        """Return the last known state; never talks to Couchbase."""
        with self._lock:
            age = None if self._probed_at is None else round(time.monotonic() - self._probed_at, 1)
            is_whole = self._state is ConnectionState.READY and self._outage_began is None
            healthy = is_whole and not self._write_denied
            status: dict[str, object] = {
                "is_healthy": healthy,
                "connection_state": self._state.value,
                "last_probe_age_seconds": age,
                "username": self._used.username if self._used else None,
                "transport": self._transport.name if self._transport else None,
            }
            if self._transport and self._transport.notice:
                status["transport_notice"] = self._transport.notice
            if not healthy:
                status["reason"] = self._reason or _WRITE_DENIED_REASON
            return status

    def close(self) -> None:
        """Stop probing and disconnect. Idempotent."""
        with self._changed:
            if self._state is ConnectionState.CLOSED:
                return
            self._state = ConnectionState.CLOSED
            self._changed.notify_all()
        self._ended.set()
        self._wake.set()
        if self._thread.is_alive():
            # An attempt to connect under way ends by its own timeout; the thread is a daemon.
            self._thread.join(timeout=_PROBE_TIMEOUT_SECONDS + 1)
        for transport in [*(old for _, old in self._retired), self._transport]:
            if transport is not None:
                transport.close()

    def _run(self) -> None:
        backoff = _FIRST_BACKOFF_SECONDS
        while not self._is_closed():
            began = time.monotonic()
            try:
                attempted = self._needs_connection()
                good = self._connect() if attempted else self._probe()
                if not good and attempted:
                    # New credentials may be wrong or early; the login in use must not suffer from that.
                    self._probe()
                self._close_retired()
            except Exception:  # a surprise from the SDK must not end the only thread that can bring it back
                logger.exception("The connection to Couchbase failed unexpectedly; it is tried again")
                attempted, good = True, False
            if attempted:
                wait = 0.0 if good else backoff
                backoff = _FIRST_BACKOFF_SECONDS if good else min(2 * backoff, _LAST_BACKOFF_SECONDS)
            else:
                wait = PROBE_INTERVAL_SECONDS if good else _OUTAGE_PROBE_INTERVAL_SECONDS
            if wait and not self._is_closed():
                self._wake.wait(wait)
                # Calls that fail in quick succession wake it each time: that must not become a busy loop.
                self._ended.wait(max(0.0, began + _LEAST_BETWEEN_PROBES_SECONDS - time.monotonic()))
                self._wake.clear()

    def _is_closed(self) -> bool:
        return self._state is ConnectionState.CLOSED

    def _needs_connection(self) -> bool:
        if self._transport is None or self._reason == _DENIED_REASON:
            return True
        try:
            changed = self._credentials.read() != self._used
        except CredentialsError:
            changed = False  # half-replaced files: the present connection goes on
        outage = self._state is ConnectionState.UNAVAILABLE
        now = time.monotonic()
        return changed or (outage and now >= self._reconnect_at) or self._is_retry_due(now)

    def _is_retry_due(self, now: float) -> bool:
        """Whether a substitute works well and it is time to see if the wished-for transport does by now."""
        is_substitute = self._transport is not None and bool(self._transport.notice)
        return is_substitute and self._state is ConnectionState.READY and now >= self._retry_at

    def _plan_retry(self, transport: Transport) -> None:
        if not transport.notice:
            self._retry_pause_seconds = FIRST_RETRY_SECONDS
        self._retry_at = time.monotonic() + self._retry_pause_seconds
        self._retry_pause_seconds = min(2 * self._retry_pause_seconds, LAST_RETRY_SECONDS)

    def _connect(self) -> bool:
        is_retry = self._is_retry_due(time.monotonic())
        if is_retry and self._transport is not None:
            self._plan_retry(self._transport)
        try:
            credentials = self._credentials.read()
            limit = _ATTEMPT_SHARE * self._settings.connect_timeout_seconds
            transport = self._open_transport(self._settings, credentials, limit)
        except (ConnectError, CredentialsError) as error:
            self._not_connected(str(error))
            return False
        if is_retry and transport.notice and credentials == self._used:
            transport.close()  # another substitute is of no use
            return True
        self._plan_retry(transport)
        with self._changed:
            closed = self._state is ConnectionState.CLOSED
            if not closed:
                old, self._transport, self._used = self._transport, transport, credentials
                self._last_refusal = ""
                if old is not None:
                    # Calls that began on the old connection may go on until their task's deadline.
                    self._retired.append((time.monotonic() + self._settings.store_deadline_seconds, old))
        if closed:
            transport.close()
            return False
        if transport.notice and (old is None or old.notice != transport.notice):
            logger.warning("The direct transport is not used, the slower SDK is: %s", transport.notice)
        self._recover(partial=False)
        return True

    def _probe(self) -> bool:
        """Ask for documents that do not exist; tells what the user may do and which nodes answer."""
        transport = self._transport
        if transport is None:
            return False
        began = time.monotonic()
        outcomes = transport.probe(min(_PROBE_TIMEOUT_SECONDS, self._settings.kv_timeout_seconds))
        told = [outcome for outcome in outcomes if outcome not in _NOT_ASKED]
        answered = [outcome in _ALIVE for outcome in told]
        self._probed_at = time.monotonic()
        if any(answered):
            self._recover(partial=not all(answered))
        elif Outcome.DENIED in told:
            self._lose(_DENIED_REASON)
        elif told and self._heard_at < began:
            self._lose(_SILENT_REASON)
        # Else a call was answered meanwhile: the probe only waited behind the megabytes of others.
        return bool(told) and all(answered)

    def _recover(self, *, partial: bool) -> None:
        with self._changed:
            if self._state is ConnectionState.CLOSED:
                return
            before, was_partial = self._state, self.is_partial
            # Before the state: readers take no lock.
            self._outage_began = (self._outage_began or time.monotonic()) if partial else None
            self._state, self._unanswered_calls = ConnectionState.READY, 0
            self._is_suspect = False
            self._reason = "some data nodes do not answer" if partial else ""
            self._probed_at = time.monotonic()
            if before is not ConnectionState.READY:
                # A refusal may have been that of a collection that was gone: the next write tells.
                self._write_denied = False
            self._changed.notify_all()
        if before is not ConnectionState.READY:
            logger.info("Couchbase is available: the cache is used from now on")
        if partial and not was_partial:
            logger.warning("Some data nodes of Couchbase do not answer: chunks on them are recomputed")

    def _lose(self, reason: str) -> None:
        with self._lock:
            if self._state is not ConnectionState.READY:
                self._reason = reason
                return
            self._state, self._reason = ConnectionState.UNAVAILABLE, reason
            now = time.monotonic()
            self._outage_began = self._outage_began or now
            self._reconnect_at = now + _RECONNECT_AFTER_OUTAGE_SECONDS
        logger.warning("Couchbase is not available, prompts are recomputed meanwhile: %s", reason)

    def _not_connected(self, reason: str) -> None:
        with self._lock:
            known, self._last_refusal = self._last_refusal == reason, reason
            self._reason = reason
            self._reconnect_at = time.monotonic() + _RECONNECT_AFTER_OUTAGE_SECONDS
        if not known:
            logger.warning("Cannot use Couchbase at %s yet: %s", self._settings.connection_string, reason)

    def _close_retired(self) -> None:
        now = time.monotonic()
        due = [transport for when, transport in self._retired if when <= now]
        self._retired = [(when, transport) for when, transport in self._retired if when > now]
        for transport in due:
            transport.close()


_SILENT_REASON = "Couchbase does not answer"
_DENIED_REASON = "the user may not use the collection, or the collection is gone"
_WRITE_DENIED_REASON = "the user may read but not write: it lacks the role data_writer"
