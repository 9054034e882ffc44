"""The least that the data service's protocol costs a client: pipelined requests over bare sockets, nothing else.

Moves the bytes of the same objects as documents of at most 1 MiB between preallocated memory and the server: no
manifests, no checksums, no locks, no event loop, one thread per connection. It checks statuses and lengths, and once
after the last round the content.

    python -m benchmarks.l2.floor ROUNDS.json --kv-port … (the password comes from the environment)
"""

import argparse
import os
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.emulator.throughput import connect, receive_exactly
from benchmarks.l2.meter import Meter
from benchmarks.l2.servers import ADMINISTRATOR, BUCKET, PASSWORD_VARIABLE

DOCUMENT_BYTES = 1 << 20
LOAD_CONNECTIONS, STORE_CONNECTIONS = 4, 2  # as many as the direct transport has by default
_WINDOW = 8  # requests ahead of the answer that is awaited
_HEADER = struct.Struct(">BBHBBHIIQ")
_GET, _SET, _DELETE, _GET_META, _SASL_AUTH, _SELECT_BUCKET = 0x00, 0x01, 0x04, 0xA0, 0x21, 0x89

Job = tuple[bytes, memoryview]


class Connection:
    """One connection, logged in, with the bucket selected."""

    def __init__(self, port: int, password: str) -> None:
        self._socket = connect(port)
        self._head = memoryview(bytearray(24 + 4))
        self._spare = memoryview(bytearray(256))
        for opcode, key, value in (
            (_SASL_AUTH, b"PLAIN", f"\0{ADMINISTRATOR}\0{password}".encode()),
            (_SELECT_BUCKET, BUCKET.encode(), b""),
        ):
            self._socket.sendall(_request(opcode, key, b"", len(value)) + value)
            self._skip(self._answer(24))

    def load(self, jobs: list[Job]) -> None:
        """Receive documents into memory."""
        for _, memory in self._pipelined(jobs, lambda key, _: self._socket.sendall(_request(_GET, key, b"", 0))):
            if self._answer(28) != len(memory) + 4:
                raise ValueError("a document has another length than was stored")
            receive_exactly(self._socket, memory)

    def store(self, jobs: list[Job]) -> None:
        """Send documents from memory."""
        for _ in self._pipelined(jobs, self._send_document):
            self._skip(self._answer(24))

    def exist(self, jobs: list[Job]) -> None:
        """Ask for documents without reading them."""
        for _ in self._pipelined(jobs, lambda key, _: self._socket.sendall(_request(_GET_META, key, b"", 0))):
            self._skip(self._answer(24))

    def remove(self, jobs: list[Job]) -> None:
        """Remove documents."""
        for _ in self._pipelined(jobs, lambda key, _: self._socket.sendall(_request(_DELETE, key, b"", 0))):
            self._skip(self._answer(24))

    def close(self) -> None:
        """Disconnect."""
        self._socket.close()

    def _send_document(self, key: bytes, memory: memoryview) -> None:
        head = _request(_SET, key, bytes(8), len(memory))
        sent = self._socket.sendmsg([head, memory])
        if sent < len(head):
            self._socket.sendall(head[sent:])
        self._socket.sendall(memory[max(0, sent - len(head)) :])

    @staticmethod
    def _pipelined(jobs: list[Job], send: Callable[[bytes, memoryview], None]) -> Iterator[Job]:
        sent = 0
        for done, job in enumerate(jobs):
            while sent < min(len(jobs), done + _WINDOW):
                send(*jobs[sent])
                sent += 1
            yield job

    def _answer(self, head_bytes: int) -> int:
        """Receive a header, with the flags behind it where there are some; return the length of what it announces."""
        receive_exactly(self._socket, self._head[:head_bytes])
        _, opcode, _, _, _, status, body_bytes, _, _ = _HEADER.unpack_from(self._head)
        if status:
            raise ValueError(f"command 0x{opcode:02x} failed with status 0x{status:02x}")
        return int(body_bytes)

    def _skip(self, body_bytes: int) -> None:
        receive_exactly(self._socket, self._spare[:body_bytes])


def _request(opcode: int, key: bytes, extras: bytes, value_bytes: int) -> bytes:
    body_bytes = len(key) + len(extras) + value_bytes
    return _HEADER.pack(0x80, opcode, len(key), len(extras), 0, 0, body_bytes, 0, 0) + extras + key


def documents(round_number: int, memory: memoryview, object_bytes: int) -> list[Job]:
    """Cut memory into objects and those into documents; every round has keys of its own."""
    jobs = []
    for start in range(0, len(memory), object_bytes):
        for offset in range(start, start + object_bytes, DOCUMENT_BYTES):
            end = min(offset + DOCUMENT_BYTES, start + object_bytes)
            jobs.append((b"%d:%d" % (round_number, offset), memory[offset:end]))
    return jobs


def carry_out(connections: list[Connection], operation: str, jobs: list[Job]) -> None:
    """Share jobs among connections, each in a thread; raises RuntimeError when one of them failed."""
    failures: list[Exception] = []

    def work(connection: Connection, share: list[Job]) -> None:
        try:
            getattr(connection, operation)(share)
        except (OSError, ValueError) as error:
            failures.append(error)

    count = len(connections)
    threads = [threading.Thread(target=work, args=(one, jobs[n::count])) for n, one in enumerate(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise RuntimeError(f"{operation} over bare sockets failed: {failures[0]}")


def main() -> None:
    """Store, look up and load all rounds, in that order, as LMCache's benchmark does."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    for name in ("--kv-port", "--objects", "--object-bytes", "--rounds"):
        parser.add_argument(name, type=int, required=True)
    arguments = parser.parse_args()
    held_bytes = arguments.objects * arguments.object_bytes
    source = memoryview(bytearray(os.urandom(held_bytes)))
    target = memoryview(bytearray(b"\1") * held_bytes)
    meter = Meter()
    meter.take_baseline()
    loading, storing = (
        [Connection(arguments.kv_port, os.environ[PASSWORD_VARIABLE]) for _ in range(count)]
        for count in (LOAD_CONNECTIONS, STORE_CONNECTIONS)
    )
    steps = (("store", storing, source), ("exist", loading[:1], source), ("load", loading, target))
    for operation, connections, memory in steps:
        for number in range(arguments.rounds):
            jobs = documents(number, memory, arguments.object_bytes)
            if operation == "exist":
                jobs = [job for job in jobs if int(job[0].partition(b":")[2]) % arguments.object_bytes == 0]
            meter.begin()
            carry_out(connections, operation, jobs)
            meter.end()
    if source != target:
        raise RuntimeError("what was loaded over bare sockets is not what was stored")
    meter.write(arguments.record)


if __name__ == "__main__":
    main()
