"""The direct transport and what does not answer: name servers, addresses, nodes. It costs no more than its share."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from conftest import PASSWORD, USERNAME, Place
from three_nodes import COLLECTION, running_three_nodes

from couchbase_lm_cache.credentials import Credentials
from couchbase_lm_cache.direct.addresses import Node, parse_connection_string
from couchbase_lm_cache.direct.name_lookup import look_up
from couchbase_lm_cache.direct.stream import ConnectionLostError, Stream
from couchbase_lm_cache.direct.topology import Topology
from couchbase_lm_cache.settings import CouchbaseLMCacheConfig

SECONDS = 10.0


@pytest.fixture
def resolve(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], list[Any]]], list[str]]:
    """Let names under .test be looked up by the test; gives the names that were asked for."""
    real = socket.getaddrinfo
    asked: list[str] = []

    def install(name: str, answer: Callable[[], list[Any]]) -> list[str]:
        def getaddrinfo(host: str, *rest: Any, **options: Any) -> Any:
            if host != name or options.get("flags"):
                return real(host, *rest, **options)
            asked.append(host)
            return answer()

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        return asked

    return install


def record(host: str = "127.0.0.1") -> Any:
    return (socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0))


@pytest.fixture
def tarpit() -> Iterator[int]:
    """A port on which nobody is ever connected, nor refused."""
    with ExitStack() as open_sockets:
        listener = open_sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port = int(listener.getsockname()[1])
        for _ in range(3):  # the queue is full then
            waiting = open_sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        yield port


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


def test_a_name_server_that_keeps_silent_holds_nobody_beyond_the_deadline(
    resolve: Callable[..., list[str]], listening: int
) -> None:
    answered = threading.Event()

    def answer() -> list[Any]:
        answered.wait(SECONDS)
        return [record()]

    asked = resolve("slow.test", answer)
    node = Node("slow.test", listening)
    try:
        for _ in range(3):
            began = time.monotonic()
            with pytest.raises(ConnectionLostError, match=r"slow\.test:.* no answer"):
                Stream(node, None, began + 0.2)
            assert 0.15 < time.monotonic() - began < 2
        assert asked == ["slow.test"], "one thread waits for a name, however many ask"
    finally:
        answered.set()
    Stream(node, None, time.monotonic() + SECONDS).close()


def test_a_name_that_nobody_knows_is_told_at_once_and_asked_for_again(
    resolve: Callable[..., list[str]], listening: int
) -> None:
    known: list[Any] = []

    def answer() -> list[Any]:
        if not known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return known

    asked = resolve("new.test", answer)
    began = time.monotonic()
    with pytest.raises(ConnectionLostError, match="Name or service not known"):
        Stream(Node("new.test", listening), None, began + SECONDS)
    assert time.monotonic() - began < SECONDS / 2
    known.append(record())
    Stream(Node("new.test", listening), None, time.monotonic() + SECONDS).close()
    assert len(asked) == 2


def test_a_name_is_looked_up_once_for_all_its_ports(resolve: Callable[..., list[str]], listening: int) -> None:
    answered = threading.Event()

    def answer() -> list[Any]:
        answered.wait(SECONDS)
        return [record()]

    asked = resolve("ports.test", answer)
    with socket.create_server(("127.0.0.1", 0)) as other, ThreadPoolExecutor(2) as pool:
        ports = [listening, other.getsockname()[1]]
        deadline = time.monotonic() + SECONDS
        answers = [pool.submit(look_up, "ports.test", port, deadline) for port in ports]
        threading.Timer(0.2, answered.set).start()
        assert [[address.place for address in found.result()] for found in answers] == [
            [("127.0.0.1", port)] for port in ports
        ]
    assert asked == ["ports.test"]


def test_a_name_that_no_thread_could_be_had_for_is_looked_up_the_next_time(
    resolve: Callable[..., list[str]], listening: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve("threads.test", lambda: [record()])
    node = Node("threads.test", listening)

    def no_thread(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(ConnectionLostError, match="no thread could be started"):
            Stream(node, None, time.monotonic() + SECONDS)
    Stream(node, None, time.monotonic() + SECONDS).close()


def test_an_address_that_does_not_answer_leaves_time_for_the_others(
    resolve: Callable[..., list[str]], tarpit: int
) -> None:
    resolve("many.test", lambda: [record(), record(), record("127.0.0.2")])
    with socket.create_server(("127.0.0.2", tarpit)):
        began = time.monotonic()
        stream = Stream(Node("many.test", tarpit), None, began + 3.0)
        assert 1.0 < time.monotonic() - began < 3.0
        stream.close()


def test_all_addresses_together_take_no_longer_than_one(resolve: Callable[..., list[str]], tarpit: int) -> None:
    resolve("many.test", lambda: [record()] * 5)
    began = time.monotonic()
    with pytest.raises(ConnectionLostError, match="no answer"):
        Stream(Node("many.test", tarpit), None, began + 0.5)
    assert time.monotonic() - began < 1.5


@pytest.mark.parametrize(
    "node", [Node("127.0.0.1", 70_000), Node("127.0.0.1", -1), Node("a" * 70 + ".test", 11210), Node("nul\0.test", 1)]
)
def test_a_place_that_cannot_be_is_like_one_that_does_not_answer(node: Node) -> None:
    with pytest.raises(ConnectionLostError):
        Stream(node, None, time.monotonic() + SECONDS)


def test_a_silent_node_leaves_time_to_ask_the_others_for_a_new_map() -> None:
    with running_three_nodes() as cluster, socket.create_server(("127.0.0.1", 0)) as silent:
        ports = [port for _, port in cluster.kv_addresses]
        # Nodes are asked in the order of their names: the silent one first.
        cluster.set_alternate_address(0, "127.0.0.1", {"kv": silent.getsockname()[1]})
        for index in (1, 2):
            cluster.set_alternate_address(index, "localhost", {"kv": ports[index]})
        text = f"couchbase://127.0.0.1:{ports[1]}?network=external"
        params = Place(cluster, COLLECTION, "direct").params | {"connection_string": text}
        settings = CouchbaseLMCacheConfig.from_dict(params, environ={})
        topology = Topology(settings, Credentials(USERNAME, PASSWORD), parse_connection_string(text), None)
        topology.bootstrap(time.monotonic() + SECONDS)
        first, *others = topology.map.nodes
        assert first.port == silent.getsockname()[1]
        pools = [topology.pool(node, "small") for node in others]
        lent = [pool.borrow(time.monotonic() + SECONDS) for pool in pools]
        for pool, session in zip(pools, lent, strict=True):
            assert session is not None
            pool.give_back(session, is_clean=True)
        logins = cluster.counters.kv_logins
        before = topology.map.revision
        assert topology.refresh(time.monotonic() + SECONDS) is False, "there is no new map yet"
        cluster.move_vbuckets()
        time.sleep(0.1)  # questions for a map keep this distance
        began = time.monotonic()
        assert topology.refresh(began + SECONDS) is True
        assert time.monotonic() - began < 1.5
        assert topology.map.revision > before
        assert cluster.counters.kv_logins == logins, "the connections of the others are still good"
        topology.close()
