"""The servers that adapters store in, each in a process of its own that ends with the block."""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from e2e.bootstrap import ROOT
from e2e.cluster.packages import ensure

ADMINISTRATOR = "Administrator"
BUCKET = "bench"
PASSWORD_VARIABLE = "COUCHBASE_EMULATOR_PASSWORD"  # noqa: S105 - a name
_QUOTA_MIB = 6144
_MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 - a file system in memory is what is wanted
_START_SECONDS = 20.0
# What was freed is used again instead of being given back to the kernel: glibc's allocator, which the emulator uses,
# with the largest limit it takes (32 MiB) and no trimming; and jemalloc, which Redis uses.
_KEEPS_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_CONF": "dirty_decay_ms:-1,muzzy_decay_ms:-1,oversize_threshold:0",
}


class BenchmarkError(Exception):
    """A measurement could not be made; the message says which and why."""


@dataclass(frozen=True)
class Couchbase:
    """A running emulator.

    Attributes:
        password_file: holds the administrator's password.
    """

    connection_string: str
    password_file: Path
    password: str = field(repr=False)

    @property
    def kv_port(self) -> int:
        """Port of its data service."""
        return int(self.connection_string.rpartition(":")[2])


@contextmanager
def emulator() -> Iterator[Couchbase]:
    """The repository's Couchbase emulator with one ephemeral bucket."""
    password = secrets.token_hex(16)
    command = [sys.executable, "-m", "e2e.couchbase_emulator", "--kv-port", "0", "--mgmt-port", "0"]
    command += [
        "--username",
        ADMINISTRATOR,
        "--memory-quota-mib",
        str(_QUOTA_MIB),
        "--bucket",
        f"{BUCKET}:{_QUOTA_MIB}",
    ]
    environment = {**os.environ, **_KEEPS_MEMORY, PASSWORD_VARIABLE: password}
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process,
        _ending(process),
    ):
        line = process.stdout.readline() if process.stdout else ""
        if not line:
            raise BenchmarkError("the Couchbase emulator did not start; see its message above")
        password_file = Path(folder, "password")
        password_file.touch(mode=0o600)
        password_file.write_text(password)
        yield Couchbase(json.loads(line)["connectionString"], password_file, password)


@contextmanager
def redis() -> Iterator[int]:
    """Redis with its default settings, without persistence; gives its port."""
    ensure(("redis-server",))
    port = _free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--dir", folder]
        command += ["--save", "", "--appendonly", "no"]
        environment = {**os.environ, **_KEEPS_MEMORY}
        with (
            subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, text=True) as process,
            _ending(process),
        ):
            _await_redis(process, port)
            yield port


@contextmanager
def memory_folder() -> Iterator[Path]:
    """An own folder on tmpfs, removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="lmcb-bench-", dir=_MEMORY_FOLDER))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def _ending(process: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_START_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _await_redis(process: subprocess.Popen[str], port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                if connection.recv(16).startswith(b"+PONG"):
                    return
        except OSError:
            time.sleep(0.05)
    raise BenchmarkError(f"redis-server did not answer on port {port} within {_START_SECONDS:g} s")
