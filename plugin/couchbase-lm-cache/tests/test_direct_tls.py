"""Encrypted sessions that are cut off from another thread: nothing but what the server sent may become content."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import PASSWORD, USERNAME, Place
from lmcache_parts import MIB, Driver, L1Memory, content, create_adapter, keys
from three_nodes import COLLECTION, running_three_nodes

from couchbase_lm_cache.buffers import GuardedBuffer
from couchbase_lm_cache.credentials import Credentials
from couchbase_lm_cache.direct.addresses import Node
from couchbase_lm_cache.direct.calls import Call, landed
from couchbase_lm_cache.direct.exchange import Lane, run
from couchbase_lm_cache.direct.stream import ConnectionLostError, Stream, tls_context
from couchbase_lm_cache.direct.wire import Opcode, leb128
from couchbase_lm_cache.document_flags import BINARY_FLAGS
from couchbase_lm_cache.settings import CouchbaseLMCacheConfig
from couchbase_lm_cache.transport import Outcome, ShardRead, ShardWrite
from couchbase_lm_cache.transports import open_transport
from e2e.couchbase_emulator.running import RunningEmulator
from e2e.couchbase_emulator.tls import TlsFiles, ensure_tls_files

SECONDS = 10.0
CHURN_SECONDS = 8.0
VALUE = b"v" * 40_000
SECRET = b"what-nobody-may-read" * 100
_HEADER = struct.Struct(">BBHBBHIIQ")


class Recorder:
    """Passes bytes on between two sockets, and keeps what the client sent as it was on the wire."""

    def __init__(self, port: int) -> None:
        self.sent = bytearray()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._target = port
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        server = socket.create_connection(("127.0.0.1", self._target))
        back = threading.Thread(target=self._pass, args=(server, client, None), daemon=True)
        self._threads.append(back)
        back.start()
        self._pass(client, server, self.sent)

    @staticmethod
    def _pass(source: socket.socket, target: socket.socket, kept: bytearray | None) -> None:
        with contextlib.suppress(OSError), source, target:
            while part := source.recv(65536):
                if kept is not None:
                    kept += part
                target.sendall(part)
            target.shutdown(socket.SHUT_RDWR)
            source.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        for thread in self._threads:
            thread.join(SECONDS)


class Secured:
    """A stream with TLS to a server of the test, over a recorder."""

    def __init__(self, files: TlsFiles) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        accepted: list[ssl.SSLSocket] = []
        thread = threading.Thread(
            target=lambda: accepted.append(files.server_context().wrap_socket(listener.accept()[0], server_side=True))
        )
        thread.start()
        self.recorder = Recorder(listener.getsockname()[1])
        context = tls_context(str(files.ca), verify=True)
        self.stream = Stream(Node("127.0.0.1", self.recorder.port), context, time.monotonic() + SECONDS)
        thread.join(SECONDS)
        listener.close()
        self.server = accepted[0]

    def close(self) -> None:
        self.stream.close()
        self.server.close()
        self.recorder.close()


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    secured = Secured(ensure_tls_files(tmp_path, ("127.0.0.1",)))
    yield secured
    secured.close()


def in_the_middle_of_an_abort(monkeypatch: pytest.MonkeyPatch, action: Callable[[], None]) -> None:
    """Let something happen after an abort has begun and before the connection is down."""
    original = socket.socket.shutdown

    def interrupted(self: socket.socket, how: int) -> None:
        monkeypatch.setattr(socket.socket, "shutdown", original)
        action()
        original(self, how)

    monkeypatch.setattr(socket.socket, "shutdown", interrupted)


def half_received(secured: Secured, memory: bytearray) -> tuple[Lane, Call, bytes]:
    """A lane that has received the first half of a value; the rest of the answer."""
    frame = _HEADER.pack(0x81, 0, 0, 4, 0, 0, 4 + len(VALUE), 0, 1) + struct.pack(">I", BINARY_FLAGS) + VALUE
    sink = ShardRead("k", GuardedBuffer(memoryview(memory)), 0, len(VALUE), None)
    call = Call(Opcode.GET, "k", sink=sink)
    call.prepare(0, leb128(8))
    lane = Lane(secured.stream, [call.request])
    half = len(frame) // 2
    secured.server.sendall(frame[:half])
    deadline = time.monotonic() + SECONDS
    while call.request.landed_bytes < half - 28:
        run([lane], time.monotonic() + 0.05)
        assert time.monotonic() < deadline
    return lane, call, frame[half:]


def test_no_ciphertext_lands_in_memory_when_a_session_is_cut_off(secured: Secured) -> None:
    memory = bytearray(len(VALUE))
    lane, call, rest = half_received(secured, memory)
    secured.server.sendall(rest)
    # Until the rest, still encrypted, waits to be received: an abort does not throw it away.
    deadline = time.monotonic() + SECONDS
    while len(waiting_bytes(secured.stream)) < len(rest):
        assert time.monotonic() < deadline
    secured.stream.abort()
    run([lane], time.monotonic() + SECONDS)
    assert lane.is_done
    assert memory.count(b"v") == call.request.landed_bytes
    assert memory.count(0) == len(VALUE) - call.request.landed_bytes
    if call.request.status == 0:
        call.settle(Outcome.OK)
        assert landed(call) is Outcome.OK


def waiting_bytes(stream: Stream) -> bytes:
    """What has arrived and not been received, as it came over the wire."""
    with socket.socket(fileno=os.dup(stream.fileno())) as copy:
        try:
            return copy.recv(1 << 20, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return b""


def test_nothing_leaves_in_clear_text_while_a_session_is_cut_off(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    in_the_middle_of_an_abort(monkeypatch, lambda: sent.append(secured.stream.send([SECRET])))
    secured.stream.abort()
    assert sent == [len(SECRET)]
    with pytest.raises(ConnectionLostError):
        secured.stream.send([SECRET])
    secured.close()
    assert len(secured.recorder.sent) > len(SECRET)
    assert SECRET[:20] not in secured.recorder.sent


@pytest.mark.parametrize("is_closed", [False, True])
def test_what_is_cut_off_or_closed_neither_sends_nor_receives(secured: Secured, is_closed: bool) -> None:
    secured.stream.abort()
    if is_closed:
        secured.stream.close()
    memory = bytearray(100)
    with pytest.raises(ConnectionLostError):
        secured.stream.send([SECRET])
    with pytest.raises(ConnectionLostError):
        secured.stream.receive([memoryview(memory)])
    assert memory == bytes(100)


def test_a_descriptor_is_not_given_away_while_it_is_being_cut_off(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = secured.stream.fileno()
    is_inside, may_go_on = threading.Event(), threading.Event()

    def wait() -> None:
        is_inside.set()
        may_go_on.wait(SECONDS)

    in_the_middle_of_an_abort(monkeypatch, wait)
    aborting = threading.Thread(target=secured.stream.abort)
    aborting.start()
    assert is_inside.wait(SECONDS)
    closing = threading.Thread(target=secured.stream.close)
    closing.start()
    closing.join(0.2)
    os.fstat(number)  # still ours: nobody else can have been given the number
    may_go_on.set()
    closing.join(SECONDS)
    aborting.join(SECONDS)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


def test_cutting_off_what_is_closed_does_not_reach_who_has_its_descriptor_now(secured: Secured) -> None:
    number = secured.stream.fileno()
    secured.stream.close()
    pairs = []
    while number not in {end.fileno() for pair in pairs for end in pair}:
        pairs.append(socket.socketpair())
        assert len(pairs) < 100
    secured.stream.abort()
    secured.stream.close()
    for left, right in pairs:
        left.sendall(b"alive")
        assert right.recv(5) == b"alive"
        left.close()
        right.close()


@pytest.fixture
def cluster() -> Iterator[RunningEmulator]:
    with running_three_nodes(tls=True) as emulator:
        yield emulator


def params_for(cluster: RunningEmulator) -> dict[str, object]:
    return Place(cluster, COLLECTION, "direct").params | {
        "connection_string": cluster.tls_connection_string,
        "tls_ca_file": str(cluster.ca_path),
        "checksum": "none",
    }


class Churn:
    """A node that leaves and comes back, over and over: every new map without it cuts its sessions off."""

    def __init__(self, cluster: RunningEmulator) -> None:
        self._cluster = cluster
        self._stop = threading.Event()
        self.changes = 0
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Churn:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(SECONDS)

    def _run(self) -> None:
        while not self._stop.wait(0.03):
            self._cluster.remove_node(2, close_sockets=False)
            self._stop.wait(0.03)
            self._cluster.add_node(2)
            self.changes += 2


def test_documents_loaded_while_a_node_comes_and_goes_are_the_stored_ones(cluster: RunningEmulator) -> None:
    settings = CouchbaseLMCacheConfig.from_dict(params_for(cluster), environ={})
    transport = open_transport(settings, Credentials(USERNAME, PASSWORD), SECONDS)
    count, size = 24, MIB
    stored = os.urandom(count * size)
    source = GuardedBuffer(memoryview(bytearray(stored)))
    parts = [(f"k{n}", n * size, (n + 1) * size) for n in range(count)]
    assert transport.write([ShardWrite(*(k, source, a, b)) for k, a, b in parts], 0, SECONDS) == [Outcome.OK] * count
    wrong: list[str] = []
    others: list[Outcome] = []
    loaded = [0]
    until = time.monotonic() + CHURN_SECONDS

    def load() -> None:
        memory = bytearray(len(stored))
        while time.monotonic() < until and not wrong:
            memory[:] = bytes(len(stored))
            target = GuardedBuffer(memoryview(memory))
            outcomes = transport.read_into([ShardRead(k, target, a, b, None) for k, a, b in parts], SECONDS)
            for (name, start, end), outcome in zip(parts, outcomes, strict=True):
                if outcome is Outcome.OK:
                    loaded[0] += 1
                    if memory[start:end] != stored[start:end]:
                        wrong.append(name)
                else:
                    others.append(outcome)

    with Churn(cluster) as churn:
        threads = [threading.Thread(target=load) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    transport.close()
    assert wrong == []
    assert others == [], "every document was on a node that answers, all the time"
    assert loaded[0] > count
    assert churn.changes > 10


def test_loads_that_the_adapter_closes_on_deliver_what_was_stored_or_nothing(cluster: RunningEmulator) -> None:
    count, tasks, rounds = 16, 6, 2
    l1 = L1Memory(256 * MIB)
    sources = l1.filled(*[MIB] * count)
    expected = [content(source) for source in sources]
    targets = [l1.take(*[MIB] * count) for _ in range(tasks)]
    for round_number in range(rounds):
        driver = Driver(create_adapter(params_for(cluster)))
        if round_number == 0:
            assert driver.store(keys(count), sources).is_successful()
        for target in targets:
            for item in target:
                item.byte_array.cast("B")[:] = bytes(MIB)
        running = [driver.adapter.submit_load_task(keys(count), target) for target in targets]
        assert driver.loaded(running[0], count) == [True] * count
        assert [content(item) for item in targets[0]] == expected
        driver.adapter.close()
        before = [[content(item) for item in target] for target in targets]
        for task, target in zip(running[1:], targets[1:], strict=True):
            found = driver.adapter.query_load_result(task)
            for number, item in enumerate(target):
                whole = found is not None and found.test(number)
                # Whatever has arrived is a beginning of the document: nothing else is ever put there.
                assert content(item) == expected[number] if whole else is_beginning(content(item), expected[number])
        time.sleep(0.3)  # long enough for a thread that goes on to show
        assert [[content(item) for item in target] for target in targets] == before
    l1.close()


def is_beginning(found: bytes, stored: bytes) -> bool:
    """Say whether something is the first part of what was stored, and zeros from there on."""
    end = len(found.rstrip(b"\0"))
    return stored.startswith(found[:end])
