"""What the connection makes of calls without an answer: the probe tells an outage from less, without haste."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from couchbase_lm_cache.connection import Connection
from couchbase_lm_cache.credentials import CredentialSource
from couchbase_lm_cache.settings import CouchbaseLMCacheConfig
from couchbase_lm_cache.transport import Outcome

SETTINGS = CouchbaseLMCacheConfig.from_dict(
    {"connection_string": "couchbase://h", "bucket_name": "b", "username": "u", "password": "p"}, environ={}
)
ALL = 6


class Server:
    """A transport that answers probes as it is told to."""

    name, notice = "direct", ""

    def __init__(self) -> None:
        self.answers = [Outcome.MISSING] * ALL
        self.meanwhile: Callable[[], None] = lambda: None
        self.probes = 0
        self.probed = threading.Condition()

    def probe(self, _timeout_seconds: float) -> list[Outcome]:
        self.meanwhile()
        with self.probed:
            self.probes += 1
            self.probed.notify_all()
        return self.answers

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def connection(server: Server) -> Iterator[Connection]:
    connection = Connection(SETTINGS, CredentialSource(SETTINGS), lambda *_: server)
    connection.start()
    connection.wait_ready(5)
    await_probe(server, at_least=1)
    yield connection
    connection.close()


def await_probe(server: Server, at_least: int) -> None:
    with server.probed:
        assert server.probed.wait_for(lambda: server.probes >= at_least, 5)


def await_state(connection: Connection, state: str) -> None:
    deadline = time.monotonic() + 5
    while connection.status()["connection_state"] != state:
        assert time.monotonic() < deadline, connection.status()
        time.sleep(0.01)


def fail(connection: Connection, outcome: Outcome, calls: int = 2) -> None:
    for _ in range(calls):
        connection.note([outcome] * 8, time.monotonic() - 2)


@pytest.mark.parametrize("outcome", [Outcome.UNREACHABLE, Outcome.TIMEOUT])
def test_the_probe_decides_whether_calls_without_answer_are_an_outage(
    server: Server, connection: Connection, outcome: Outcome
) -> None:
    server.answers = [outcome] * (ALL // 3) + [Outcome.MISSING] * (ALL - ALL // 3)
    fail(connection, outcome, 20)
    assert connection.transport() is server
    await_probe(server, server.probes + 1)
    fail(connection, outcome, 20)
    assert (connection.transport(), connection.is_partial) == (server, True)
    server.answers = [outcome] * ALL
    await_state(connection, "unavailable")
    assert connection.transport() is None
    server.answers = [Outcome.MISSING] * ALL
    await_state(connection, "ready")
    assert not connection.is_partial


def test_one_document_without_an_answer_is_reason_enough_to_look(server: Server, connection: Connection) -> None:
    server.answers = [Outcome.UNREACHABLE] + [Outcome.MISSING] * (ALL - 1)
    before = server.probes
    connection.note([Outcome.OK, Outcome.UNREACHABLE], time.monotonic())
    await_probe(server, before + 1)


@pytest.mark.parametrize("outcome", [Outcome.CONGESTED, Outcome.REVOKED, Outcome.LATE, Outcome.BUSY])
def test_waiting_and_lateness_are_no_silence(server: Server, connection: Connection, outcome: Outcome) -> None:
    server.answers = [Outcome.UNREACHABLE] * ALL
    before = server.probes
    limit = connection.call_timeout_seconds
    fail(connection, outcome, 20)
    connection.note_write([outcome] * 8, time.monotonic() - 2)
    assert connection.call_timeout_seconds == limit
    assert (server.probes, connection.transport()) == (before, server)


def test_a_probe_that_found_no_free_connection_says_nothing(server: Server, connection: Connection) -> None:
    server.answers = [Outcome.CONGESTED] * ALL
    fail(connection, Outcome.TIMEOUT)
    await_probe(server, server.probes + 1)
    assert connection.transport() is server


def test_a_probe_that_waits_behind_answers_of_others_is_no_outage(server: Server, connection: Connection) -> None:
    server.answers = [Outcome.TIMEOUT] * ALL
    server.meanwhile = lambda: connection.note([Outcome.OK], time.monotonic())
    before = server.probes
    fail(connection, Outcome.TIMEOUT)
    await_probe(server, before + 2)
    assert connection.transport() is server
    server.meanwhile = lambda: None
    await_state(connection, "unavailable")


@pytest.mark.parametrize("outcome", [Outcome.BUSY, Outcome.CONGESTED])
def test_what_may_be_of_our_own_making_is_no_sign_of_life(
    server: Server, connection: Connection, outcome: Outcome
) -> None:
    """A call whose connection was closed on our side is BUSY as well."""
    server.answers = [Outcome.TIMEOUT] * ALL
    server.meanwhile = lambda: connection.note([outcome], time.monotonic())
    fail(connection, Outcome.TIMEOUT)
    await_state(connection, "unavailable")


def test_lookups_have_less_time_until_the_probe_has_seen_who_does_not_answer(
    server: Server, connection: Connection
) -> None:
    limit = connection.lookup_timeout_seconds
    may_answer = threading.Event()
    server.meanwhile = lambda: may_answer.wait(5) and None
    connection.note([Outcome.OK, Outcome.TIMEOUT], time.monotonic() - 2)
    suspicious = connection.lookup_timeout_seconds
    assert suspicious < limit
    assert connection.call_timeout_seconds == limit
    may_answer.set()
    await_probe(server, server.probes + 1)
    deadline = time.monotonic() + 5
    while connection.lookup_timeout_seconds != limit:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    server.answers = [Outcome.TIMEOUT] + [Outcome.MISSING] * (ALL - 1)
    connection.note([Outcome.OK, Outcome.TIMEOUT], time.monotonic() - 2)
    while not connection.is_partial:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert connection.lookup_timeout_seconds < suspicious


@pytest.mark.usefixtures("eager_probes")
def test_a_node_whose_answer_to_the_probe_comes_late_has_answered(server: Server, connection: Connection) -> None:
    answers = server.answers
    server.answers = [Outcome.UNREACHABLE, Outcome.LATE, *answers[2:]]
    fail(connection, Outcome.TIMEOUT)
    await_probe(server, server.probes + 2)
    assert connection.is_partial
    server.answers = [Outcome.LATE, Outcome.LATE, *answers[2:]]
    await_probe(server, server.probes + 2)
    assert not connection.is_partial


def test_calls_that_fail_all_the_time_make_no_busy_loop(server: Server, connection: Connection) -> None:
    before, end = server.probes, time.monotonic() + 1.0
    while time.monotonic() < end:
        fail(connection, Outcome.UNREACHABLE, 1)
        time.sleep(0.002)
    assert server.probes - before <= 7
    begun = time.monotonic()
    connection.close()
    assert time.monotonic() - begun < 0.5
