"""Lets a server touch the memory it is going to need, once, before anything is measured.

The first use of a page costs the kernel's clearing of it, on a virtual machine more than the rest of a write: a server
that has just started is slow for a reason that one which has been running for a day no longer has. So every server
that keeps objects in its own memory is filled with the bytes of all rounds and emptied again, by the same plain
sockets, and is told not to give what it freed back to the kernel (:mod:`benchmarks.l2.servers`).
"""

import socket

from benchmarks.emulator.throughput import connect
from benchmarks.l2.floor import Connection, documents
from benchmarks.l2.workloads import Workload

_REDIS_WINDOW_BYTES = 64 << 20
_REDIS_SECONDS = 60.0


def warm_couchbase(port: int, password: str, workload: Workload) -> None:
    """Store documents as the adapter will, and remove them."""
    memory = memoryview(bytearray(workload.objects * workload.object_bytes))
    connection = Connection(port, password)
    rounds = [documents(number, memory, workload.object_bytes) for number in range(workload.total_rounds)]
    for jobs in rounds:
        connection.store(jobs)
    for jobs in rounds:
        connection.remove(jobs)
    connection.close()


def warm_redis(port: int, workload: Workload) -> None:
    """Store values of the objects' size, and remove them; raises ValueError when Redis refuses."""
    value = bytes(workload.object_bytes)
    with connect(port) as connection:
        connection.settimeout(_REDIS_SECONDS)
        answers = connection.makefile("rb")
        ahead = max(1, min(64, _REDIS_WINDOW_BYTES // workload.object_bytes))
        total = workload.objects * workload.total_rounds
        for first in range(0, total, ahead):
            names = [b"warm:%d" % number for number in range(first, min(first + ahead, total))]
            for name in names:
                _send(connection, b"SET", name, value)
            for _ in names:
                _expect(answers.readline(), b"+OK\r\n")
        # One by one: FLUSHALL gives the memory back to the kernel.
        for number in range(total):
            _send(connection, b"DEL", b"warm:%d" % number)
            _expect(answers.readline(), b":1\r\n")


def _send(connection: socket.socket, *words: bytes) -> None:
    connection.sendall(b"*%d\r\n" % len(words))
    for word in words:
        connection.sendall(b"$%d\r\n" % len(word))
        connection.sendall(word)
        connection.sendall(b"\r\n")


def _expect(answer: bytes, wanted: bytes) -> None:
    if answer != wanted:
        raise ValueError(f"Redis answered {answer!r}")
