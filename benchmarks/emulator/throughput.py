"""How fast the emulator serves 1 MiB values to plain sockets on one core, against the floor of bare sockets.

Server and client are separate processes, each on one core. The floor is the same transfer between two programs that
do nothing but `sendall` and `recv_into`; it is measured in the same run, so that the ratio means the same everywhere.
Wall-clock rates suffer from whatever else runs on the machine; CPU seconds per GB do not: below 1.0 the emulator
serves more than 1 GB/s from one free core.

    python -m benchmarks.emulator.throughput [--megabytes 2048] [--connections 1] [--json FILE]
"""

import argparse
import json
import os
import secrets
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

VALUE_BYTES = 1 << 20
KEYS = 64
WINDOW = 8  # requests in flight
BUCKET = "bench"
PASSWORD = secrets.token_hex(16)
_SOCKET_BUFFER_BYTES = 4 << 20
_HEADER = struct.Struct(">BBHBBHIIQ")
_FLOOR_PROGRAM = """
import socket, sys
value = bytes(1 << 20)
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    client, _ = listener.accept()
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        client.setsockopt(socket.SOL_SOCKET, option, 4 << 20)
    buffer = bytearray(1 << 20)
    while command := client.recv(1):
        if command == b"g":
            client.sendall(value)
        else:
            view = memoryview(buffer)
            while view:
                view = view[client.recv_into(view):]
            client.sendall(b"k")
"""


class Rate(NamedTuple):
    """Result of one direction."""

    gigabytes_per_second: float
    server_cpu_seconds_per_gigabyte: float
    client_cpu_seconds_per_gigabyte: float


def pin_to_core(core: int) -> Callable[[], None]:
    """A function that binds the calling process to a core, when there are several."""
    cores = sorted(os.sched_getaffinity(0))
    chosen = cores[core % len(cores)]
    return lambda: os.sched_setaffinity(0, {chosen})


def connect(port: int) -> socket.socket:
    """A connection with large buffers."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        connection.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BUFFER_BYTES)
    return connection


def receive_exactly(connection: socket.socket, view: memoryview) -> None:
    """Fill `view`; raises ConnectionError when the peer closes."""
    while view:
        count = connection.recv_into(view)
        if not count:
            raise ConnectionError("the server closed the connection")
        view = view[count:]


class KvClient:
    """A bare client of the data service: PLAIN login, one bucket, reads into one buffer."""

    def __init__(self, port: int) -> None:
        self._connection = connect(port)
        self._header = memoryview(bytearray(24))
        self._extras = memoryview(bytearray(4))
        self._value = memoryview(bytearray(VALUE_BYTES))
        self._call(0x21, b"PLAIN", b"\0Administrator\0" + PASSWORD.encode())
        self._call(0x89, BUCKET.encode())

    def read(self, count: int) -> None:
        """Get `count` values, a window of requests ahead."""
        sent = 0
        for done in range(count):
            while sent < min(count, done + WINDOW):
                self._connection.sendall(self._request(0x00, self._key(sent), b"", 0))
                sent += 1
            body_bytes = self._response()
            receive_exactly(self._connection, self._extras)
            if body_bytes != VALUE_BYTES + 4:
                raise ValueError(f"unexpected body of {body_bytes} bytes")
            receive_exactly(self._connection, self._value)

    def write(self, count: int) -> None:
        """Set `count` values, a window of requests ahead."""
        sent = 0
        for done in range(count):
            while sent < min(count, done + WINDOW):
                head = self._request(0x01, self._key(sent), bytes(8), VALUE_BYTES)
                self._connection.sendall(head)
                self._connection.sendall(self._value)
                sent += 1
            body_bytes = self._response()
            receive_exactly(self._connection, memoryview(bytearray(body_bytes)))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @staticmethod
    def _key(number: int) -> bytes:
        return b"%d" % (number % KEYS)

    @staticmethod
    def _request(opcode: int, key: bytes, extras: bytes, value_bytes: int) -> bytes:
        body = len(key) + len(extras) + value_bytes
        return _HEADER.pack(0x80, opcode, len(key), len(extras), 0, 0, body, 0, 0) + extras + key

    def _call(self, opcode: int, key: bytes, value: bytes = b"") -> None:
        self._connection.sendall(self._request(opcode, key, b"", len(value)) + value)
        receive_exactly(self._connection, memoryview(bytearray(self._response())))

    def _response(self) -> int:
        receive_exactly(self._connection, self._header)
        _, opcode, _, _, _, status, body_bytes, _, _ = _HEADER.unpack(self._header)
        if status:
            raise ValueError(f"command 0x{opcode:02x} failed with status 0x{status:02x}")
        return int(body_bytes)


class FloorClient:
    """The same transfers without any protocol."""

    def __init__(self, port: int) -> None:
        self._connection = connect(port)
        self._value = memoryview(bytearray(VALUE_BYTES))

    def read(self, count: int) -> None:
        """Receive `count` values."""
        sent = 0
        for done in range(count):
            ahead = min(count, done + WINDOW) - sent
            self._connection.sendall(b"g" * ahead)
            sent += ahead
            receive_exactly(self._connection, self._value)

    def write(self, count: int) -> None:
        """Send `count` values."""
        sent = 0
        for done in range(count):
            while sent < min(count, done + WINDOW):
                self._connection.sendall(b"s")
                self._connection.sendall(self._value)
                sent += 1
            receive_exactly(self._connection, memoryview(bytearray(1)))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


@contextmanager
def serving(command: list[str]) -> Iterator[tuple[int, str]]:
    """A server process on the first core; gives its process id and the first line it prints."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=pin_to_core(0)) as process:  # noqa: PLW1509 - no threads run yet
        try:
            yield process.pid, (process.stdout.readline() if process.stdout else "").strip()
        finally:
            process.terminate()


def cpu_seconds_of(pid: int) -> float:
    """CPU time that a process has used, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(server_pid: int, clients: list[Any], operation: str, megabytes: int) -> Rate:
    """Rate of all clients together, each in a thread."""
    share = max(1, megabytes // len(clients))
    threads = [threading.Thread(target=getattr(client, operation), args=(share,)) for client in clients]
    server_cpu, client_cpu, begin = cpu_seconds_of(server_pid), time.process_time(), time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begin
    gigabytes = share * len(clients) * VALUE_BYTES / 1e9
    return Rate(
        gigabytes / seconds,
        (cpu_seconds_of(server_pid) - server_cpu) / gigabytes,
        (time.process_time() - client_cpu) / gigabytes,
    )


def run(server_pid: int, make_client: Callable[[], Any], connections: int, megabytes: int) -> dict[str, Rate]:
    """Write and read once to warm up, then measure both."""
    clients = [make_client() for _ in range(connections)]
    for operation in ("write", "read"):
        measure(server_pid, clients, operation, KEYS * connections)
    rates = {operation: measure(server_pid, clients, operation, megabytes) for operation in ("write", "read")}
    for client in clients:
        client.close()
    return rates


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=2048, help="values of 1 MiB to move in each direction")
    parser.add_argument("--connections", type=int, default=1, help="connections, each with a thread of its own")
    parser.add_argument("--json", type=Path, help="write the result to this file")
    arguments = parser.parse_args()
    emulator = [sys.executable, "-m", "e2e.couchbase_emulator", "--kv-port", "0", "--mgmt-port", "0"]
    emulator += ["--bucket", f"{BUCKET}:1024", "--password", PASSWORD]
    floor_command = [sys.executable, "-c", _FLOOR_PROGRAM]
    with serving(emulator) as (pid, line), serving(floor_command) as (floor_pid, floor_port):
        pin_to_core(1)()
        kv_port = int(json.loads(line)["connectionString"].rpartition(":")[2])
        floor = run(floor_pid, lambda: FloorClient(int(floor_port)), 1, arguments.megabytes)
        measured = run(pid, lambda: KvClient(kv_port), arguments.connections, arguments.megabytes)
    result = {
        operation: {
            "emulator_gigabytes_per_second": round(measured[operation].gigabytes_per_second, 3),
            "floor_gigabytes_per_second": round(floor[operation].gigabytes_per_second, 3),
            "ratio": round(measured[operation].gigabytes_per_second / floor[operation].gigabytes_per_second, 3),
            "emulator_cpu_seconds_per_gigabyte": round(measured[operation].server_cpu_seconds_per_gigabyte, 3),
            "floor_cpu_seconds_per_gigabyte": round(floor[operation].server_cpu_seconds_per_gigabyte, 3),
            "client_cpu_seconds_per_gigabyte": round(measured[operation].client_cpu_seconds_per_gigabyte, 3),
        }
        for operation in ("read", "write")
    }
    columns = ("emulator GB/s", "floor GB/s", "ratio", "emulator CPU s/GB", "floor CPU s/GB")
    lines = [f"{'1 MiB values':12}" + "".join(f"{column:>19}" for column in columns)]
    for operation, row in result.items():
        lines.append(f"{operation:12}" + "".join(f"{row[name]:19.2f}" for name in list(row)[: len(columns)]))
    sys.stdout.write("\n".join(lines) + "\n")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
