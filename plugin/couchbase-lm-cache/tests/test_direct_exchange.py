"""The direct transport's exchange with a data node, down to damaged streams of bytes."""

from __future__ import annotations

import random
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from couchbase_lm_cache.buffers import GuardedBuffer
from couchbase_lm_cache.direct.calls import Call, landed
from couchbase_lm_cache.direct.exchange import Lane, run
from couchbase_lm_cache.direct.requests import Request
from couchbase_lm_cache.direct.scram import ScramClient, choose_mechanism
from couchbase_lm_cache.direct.stream import Stream
from couchbase_lm_cache.direct.wire import Opcode, ProtocolError, Status, leb128
from couchbase_lm_cache.document_flags import BINARY_FLAGS
from couchbase_lm_cache.sharding import checksum
from couchbase_lm_cache.transport import Outcome, ShardRead, ShardWrite

DOCUMENTS, BYTES = 4, 96
CORRUPTIONS = 10_000
_HEADER = struct.Struct(">BBHBBHIIQ")


class Pipe:
    """A stream to us, and the server's end of it."""

    def __init__(self) -> None:
        ours, self.server = socket.socketpair()
        ours.setblocking(False)
        self.stream = Stream.__new__(Stream)
        self.stream._socket, self.stream._secured = ours, None
        self.stream._ending, self.stream._closed = threading.Lock(), False
        self.stream.wants = 0

    def close(self) -> None:
        self.stream.close()
        self.server.close()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


def answer(opaque: int, value: bytes, *, opcode: int = Opcode.GET, status: int = 0) -> bytes:
    extras = struct.pack(">I", BINARY_FLAGS) if opcode == Opcode.GET and status == 0 else b""
    body = len(extras) + len(value)
    return _HEADER.pack(0x81, opcode, 0, len(extras), 0, status, body, opaque, 1) + extras + value


def get_calls(contents: list[bytes], target: GuardedBuffer) -> list[Call]:
    calls, offset = [], 0
    for number, content in enumerate(contents):
        sink = ShardRead(f"k{number}", target, offset, offset + len(content), checksum(content))
        call = Call(Opcode.GET, sink.key, sink=sink)
        call.prepare(0, leb128(8))
        calls.append(call)
        offset += len(content)
    return calls


def exchange(pipe: Pipe, calls: list[Call], stream_of_bytes: bytes, seconds: float) -> Lane:
    """Let the server say ``stream_of_bytes`` and nothing more."""
    pipe.server.sendall(stream_of_bytes)
    pipe.server.shutdown(socket.SHUT_WR)
    lane = Lane(pipe.stream, [call.request for call in calls])
    run([lane], time.monotonic() + seconds)
    for call in calls:
        if call.request.status == Status.OK:
            call.settle(Outcome.OK)
    return lane


def damage(clean: bytes, chance: random.Random) -> bytes:
    """Flip, drop, repeat, insert or cut bytes anywhere."""
    damaged = bytearray(clean)
    for _ in range(chance.choice((1, 1, 2, 8))):
        at = chance.randrange(len(damaged)) if damaged else 0
        kind = chance.randrange(6)
        if kind <= 2 and damaged:
            damaged[at] ^= 1 << chance.randrange(8)
        elif kind == 3:
            del damaged[at : at + chance.randrange(1, 40)]
        elif kind == 4:
            damaged[at:at] = chance.randbytes(chance.randrange(1, 40))
        else:
            damaged = damaged[:at]
    return bytes(damaged)


def test_no_damage_to_the_stream_of_bytes_delivers_a_wrong_one() -> None:
    chance = random.Random(20260)
    contents = [chance.randbytes(BYTES) for _ in range(DOCUMENTS)]
    clean = b"".join(answer(number, content) for number, content in enumerate(contents))
    whole = 0
    for _ in range(CORRUPTIONS):
        pipe, memory = Pipe(), bytearray(BYTES * DOCUMENTS)
        calls = get_calls(contents, GuardedBuffer(memoryview(memory)))
        exchange(pipe, calls, damage(clean, chance), 5.0)
        for number, call in enumerate(calls):
            if landed(call) is Outcome.OK:
                whole += 1
                assert memory[number * BYTES : (number + 1) * BYTES] == contents[number]
        pipe.close()
    assert 0 < whole < CORRUPTIONS * DOCUMENTS, "some answers must survive, and some must not"


def test_an_undamaged_stream_fills_everything_and_leaves_the_connection_usable(pipe: Pipe) -> None:
    contents = [b"a" * 10, b"", b"b" * 100_000]
    memory = bytearray(100_010)
    calls = get_calls(contents, GuardedBuffer(memoryview(memory)))
    lane = exchange(pipe, calls, b"".join(answer(n, content) for n, content in enumerate(contents)), 5.0)
    assert lane.is_clean
    assert [landed(call) for call in calls] == [Outcome.OK] * 3
    assert memory == b"".join(contents)


@pytest.mark.parametrize("length", [BYTES - 1, BYTES + 1, BYTES + 100_000])
def test_a_value_of_another_length_is_read_past_without_touching_memory(pipe: Pipe, length: int) -> None:
    memory = bytearray(2 * BYTES)
    calls = get_calls([b"x" * BYTES, b"y" * BYTES], GuardedBuffer(memoryview(memory)))
    lane = exchange(pipe, calls, answer(0, b"z" * length) + answer(1, b"y" * BYTES), 5.0)
    assert [landed(call) for call in calls] == [Outcome.WRONG_LENGTH, Outcome.OK]
    assert memory == bytes(BYTES) + b"y" * BYTES
    assert lane.is_clean


def test_no_byte_of_memory_changes_after_it_was_revoked_in_the_middle_of_a_value(pipe: Pipe) -> None:
    memory = bytearray(1000)
    target = GuardedBuffer(memoryview(memory))
    calls = get_calls([b"x" * 1000], target)
    frame = answer(0, b"x" * 1000)
    pipe.server.sendall(frame[:500])
    lane = Lane(pipe.stream, [calls[0].request])
    thread = threading.Thread(target=run, args=([lane], time.monotonic() + 10))
    thread.start()
    while memory.count(b"x") < 400:
        time.sleep(0.001)
    target.revoke()
    before = bytes(memory)
    pipe.server.sendall(frame[500:])
    thread.join(10)
    assert not thread.is_alive()
    assert memory == before
    assert calls[0].request.is_revoked


def test_memory_that_is_revoked_while_it_is_sent_ends_the_connection(pipe: Pipe) -> None:
    source = GuardedBuffer(memoryview(bytearray(b"s" * 16_000_000)))
    request = Request(Opcode.SET, b"\x08k", bytes(8), source=ShardWrite("k", source, 0, 16_000_000))
    lane = Lane(pipe.stream, [request])
    thread = threading.Thread(target=run, args=([lane], time.monotonic() + 10))
    thread.start()
    received = len(pipe.server.recv(1000))
    source.revoke()
    received += len(pipe.server.recv(1000))  # room, so that the sender wakes up
    while thread.is_alive():
        received += (
            len(pipe.server.recv(1 << 20, socket.MSG_DONTWAIT)) if select.select([pipe.server], [], [], 0)[0] else 0
        )
    pipe.stream.close()
    assert request.is_revoked
    assert not lane.is_clean
    assert received < 16_000_000


def test_time_is_up_in_the_middle_of_an_answer(pipe: Pipe) -> None:
    calls = get_calls([b"x" * BYTES], GuardedBuffer(memoryview(bytearray(BYTES))))
    pipe.server.sendall(answer(0, b"x" * BYTES)[:40])
    lane = Lane(pipe.stream, [calls[0].request])
    began = time.monotonic()
    run([lane], began + 0.2)
    assert time.monotonic() - began < 2
    assert not lane.is_clean
    assert calls[0].request.status is None


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        (answer(1, b""), "another request"),
        (answer(0, b"", opcode=Opcode.SET), "another request"),
        (b"\x80" + answer(0, b"")[1:], "0x80"),
        (_HEADER.pack(0x81, 0, 0, 4, 0, 0, 0xFFFFFFFF, 0, 0), "claims"),
        (_HEADER.pack(0x81, 0, 10, 4, 0, 0, 5, 0, 0), "claims"),
        (_HEADER.pack(0x81, 0, 0, 4, 2, 0, 4, 0, 0), "data type"),
    ],
)
def test_frames_that_cannot_be_are_refused(pipe: Pipe, frame: bytes, complaint: str) -> None:
    calls = get_calls([b""], GuardedBuffer(memoryview(bytearray(1))))
    lane = exchange(pipe, calls, frame, 5.0)
    assert isinstance(lane.failure, ProtocolError)
    assert complaint in str(lane.failure)


def test_scram_agrees_with_the_example_of_its_standard() -> None:
    """RFC 7677, section 3."""
    client = ScramClient("SCRAM-SHA256", "user", "pencil", nonce="rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    server = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert client.final(server).endswith(b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    client.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    with pytest.raises(ProtocolError, match="could not prove"):
        client.verify(b"v=AAAA")


@pytest.mark.parametrize(
    ("offered", "encrypted", "chosen"),
    [
        ("SCRAM-SHA1 SCRAM-SHA512 PLAIN", False, "SCRAM-SHA512"),
        ("SCRAM-SHA1 PLAIN", False, "SCRAM-SHA1"),
        ("PLAIN", False, None),
        ("SCRAM-SHA512 PLAIN", True, "PLAIN"),
        ("SCRAM-SHA256", True, "SCRAM-SHA256"),
    ],
)
def test_the_password_is_only_sent_where_nobody_else_can_read_it(
    offered: str, encrypted: bool, chosen: str | None
) -> None:
    assert choose_mechanism(offered, is_encrypted=encrypted) == chosen


@pytest.mark.parametrize(("number", "encoded"), [(0, b"\x00"), (8, b"\x08"), (0x80, b"\x80\x01"), (0x555, b"\xd5\x0a")])
def test_collection_ids_are_encoded_as_the_server_documents_them(number: int, encoded: bytes) -> None:
    assert leb128(number) == encoded
