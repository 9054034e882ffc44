"""Large transfers: slow readers, fragments, many connections."""

import os
import socket
import struct

from e2e.conformance.wire import WireClient
from e2e.couchbase_emulator import RunningEmulator
from tests.e2e.emulator.conftest import Wire, kv_port

MIB = 1024 * 1024


def test_slow_reader_gets_every_answer(emulator: RunningEmulator) -> None:
    values = [os.urandom(MIB) for _ in range(4)]
    with Wire(emulator) as client:
        for number, value in enumerate(values):
            assert client.set(b"%d" % number, value).status == 0
        # 200 MiB of answers wait while nobody reads.
        asked = [(client.send_get(b"%d" % (number % 4)), values[number % 4]) for number in range(200)]
        with Wire(emulator) as other:
            assert other.get(b"0").value == values[0]
        for opaque, value in asked:
            reply = client.receive()
            assert (reply.opaque, reply.value == value) == (opaque, True)


def test_requests_in_fragments_of_any_size(emulator: RunningEmulator) -> None:
    value = os.urandom(40_000)
    header = struct.Struct(">BBHBBHIIQ")
    frames = header.pack(0x80, 0x0A, 0, 0, 0, 0, 0, 1, 0)
    frames += header.pack(0x80, 0x1F, 0, 0, 0, 0, len(value), 2, 0) + value
    frames += header.pack(0x80, 0x0A, 0, 0, 0, 0, 0, 3, 0)
    for step in (1, 7, 24, 1000, 16 * 1024, len(frames)):
        with socket.create_connection(("127.0.0.1", kv_port(emulator)), timeout=5) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            size = step if step > 1 else 997
            for at in range(0, len(frames), size):
                connection.sendall(frames[at : at + size])
            answered = connection.makefile("rb")
            opaques = []
            for _ in range(3):
                fields = header.unpack(answered.read(24))
                answered.read(fields[6])
                opaques.append(fields[7])
            assert opaques == [1, 2, 3]


def test_nonsense_closes_the_connection(emulator: RunningEmulator) -> None:
    with socket.create_connection(("127.0.0.1", kv_port(emulator)), timeout=5) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(100) == b""


def test_many_connections(emulator: RunningEmulator) -> None:
    clients: list[WireClient] = []
    for number in range(100):
        client = WireClient("127.0.0.1", kv_port(emulator))
        client.hello()
        assert client.login("app", "app-password", "SCRAM-SHA1") == 0
        assert client.open_collection("cache", "kv", "shards") == 0
        assert client.set(b"key-%d" % number, b"%d" % number).status == 0
        clients.append(client)
    for number, client in enumerate(clients):
        assert client.get(b"key-%d" % ((number + 1) % 100)).value == b"%d" % ((number + 1) % 100)
        client.close()
