"""Lookups that wait for each other: they are asked together, and none waits for longer than a call may take."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from couchbase_lm_cache.lookups import Lookups
from couchbase_lm_cache.tasks import DeadlineWatch, TaskTable
from couchbase_lm_cache.transport import Outcome
from couchbase_lm_cache.workers import WorkerPool

DEADLINE_SECONDS = 10.0


class Server:
    """A transport that finds every key, one call at a time, when it is let; and the connection to it."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.limits: list[float] = []
        self.outcomes: Callable[[str], Outcome] = lambda _: Outcome.OK
        self.called = threading.Semaphore(0)
        self.may_answer = threading.Semaphore(0)
        self.lookup_timeout_seconds = 5.0
        self.is_partial = False

    def exists(self, keys: Sequence[str], timeout_seconds: float) -> list[Outcome]:
        self.calls.append(list(keys))
        self.limits.append(timeout_seconds)
        self.called.release()
        assert self.may_answer.acquire(timeout=DEADLINE_SECONDS)
        return [self.outcomes(key) for key in keys]

    def transport(self) -> Server:
        return self

    def note(self, outcomes: Sequence[Outcome], began: float) -> None:
        """Nothing is learned."""


class Client:
    """Looks up, over one thread."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.watch = DeadlineWatch()
        self.tasks: TaskTable[Any] = TaskTable(SimpleNamespace(notify=lambda: None), self.watch)
        self.pool = WorkerPool("lookup", 1)
        self.hits: list[str] = []
        self.lookups = Lookups(cast("Any", server), self.pool, cast("Any", SimpleNamespace(hit=self.hits.extend)))

    def look_up(self, *keys: str, deadline_seconds: float = DEADLINE_SECONDS) -> Callable[[], list[bool]]:
        found = [False] * len(keys)
        task = self.tasks.open(deadline_seconds, [], lambda: list(found))
        self.lookups.start(task, keys, found)

        def result() -> list[bool]:
            assert task.ended.wait(DEADLINE_SECONDS / 2)
            answer = self.tasks.take(task.id)
            assert answer is not None
            return cast("list[bool]", answer)

        return result


@pytest.fixture
def client() -> Iterator[Client]:
    server = Server()
    client = Client(server)
    yield client
    for _ in range(100):
        server.may_answer.release()
    client.tasks.close()
    client.pool.close(5)
    client.watch.close()


def await_call(server: Server) -> None:
    assert server.called.acquire(timeout=DEADLINE_SECONDS)


def test_lookups_that_wait_are_asked_in_one_call(client: Client) -> None:
    server = client.server
    server.outcomes = lambda key: Outcome.MISSING if key in "bd" else Outcome.OK
    first = client.look_up("a", "b")
    await_call(server)
    others = [client.look_up("b", "c"), client.look_up("c", "d", "e"), client.look_up("d")]
    server.may_answer.release()
    assert first() == [True, False]
    await_call(server)
    server.may_answer.release()
    assert [result() for result in others] == [[False, True], [True, False, True], [False]]
    assert server.calls == [["a", "b"], ["b", "c", "d", "e"]]
    assert client.hits == ["a", "c", "e"]


def test_a_call_for_many_lookups_stays_bounded(client: Client) -> None:
    server = client.server
    first = client.look_up("first")
    await_call(server)
    others = [client.look_up(*(f"{n}-{m}" for m in range(200))) for n in range(6)]
    large = client.look_up(*(f"large-{m}" for m in range(1200)))
    for _ in range(10):
        server.may_answer.release()
    assert first() == [True]
    assert [sum(result()) for result in (*others, large)] == [200] * 6 + [1200]
    assert max(map(len, server.calls)) <= 512
    assert sum(map(len, server.calls)) == 1 + 6 * 200 + 1200


def test_who_has_waited_as_long_as_a_call_may_take_is_given_up(client: Client) -> None:
    server = client.server
    server.lookup_timeout_seconds = 0.3
    client.look_up("first")
    await_call(server)
    second = client.look_up("second")
    time.sleep(0.35)  # it is time that is tested
    third = client.look_up("third")
    server.may_answer.release()
    await_call(server)
    assert second() == [False], "who is given up must not wait for those who are asked for"
    server.may_answer.release()
    assert third() == [True]
    assert server.calls == [["first"], ["third"]]
    assert server.limits[-1] == pytest.approx(0.3), "who is asked for has all of the time"


def test_lookups_whose_task_has_ended_are_not_asked_for(client: Client) -> None:
    server = client.server
    client.look_up("first")
    await_call(server)
    second = client.look_up("second", deadline_seconds=0.05)
    third = client.look_up("third")
    assert second() == [False]
    server.may_answer.release()
    await_call(server)
    server.may_answer.release()
    assert third() == [True]
    assert server.calls == [["first"], ["third"]]


def test_what_no_node_was_asked_for_gets_another_turn(client: Client) -> None:
    server = client.server
    server.outcomes = lambda key: Outcome.CONGESTED if key in "bc" and len(server.calls) == 1 else Outcome.OK
    result = client.look_up("a", "b", "c")
    server.may_answer.release()
    server.may_answer.release()
    assert result() == [True] * 3
    assert server.calls == [["a", "b", "c"], ["b", "c"]]


def test_while_a_node_does_not_answer_nobody_waits_twice_for_its_connections(client: Client) -> None:
    server = client.server
    server.is_partial = True
    server.outcomes = lambda key: Outcome.CONGESTED if key == "b" else Outcome.OK
    result = client.look_up("a", "b")
    server.may_answer.release()
    assert result() == [True, False]
    assert len(server.calls) == 1


def test_a_defect_costs_only_the_lookups_of_its_call(client: Client) -> None:
    server = client.server

    def fail(_key: str) -> Outcome:
        raise ArithmeticError

    server.outcomes = fail
    first = client.look_up("first")
    await_call(server)
    second = client.look_up("second")
    third = client.look_up("third")
    server.may_answer.release()
    assert first() == [False]
    await_call(server)
    server.may_answer.release()
    assert (second(), third()) == ([False], [False])
    server.outcomes = lambda _: Outcome.OK
    server.may_answer.release()
    assert client.look_up("fourth")() == [True]
