"""A real ``lmcache server`` and workers, each a process of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

CHUNK_TOKENS = 64
_POOL_GIGABYTES = 0.0625
_START_SECONDS = 120.0
_STOP_SECONDS = 20.0
# A request that the other side never answers is given up after this.
REQUEST_SECONDS = 20.0


class ProcessEnded(RuntimeError):  # noqa: N818  # names what happened
    """A process that the check needs is not there (any more); the text has the end of its log."""


def environment(backend: str | None) -> dict[str, str]:
    """Return the variables for a process that uses ``backend``, or LMCache's own choice."""
    variables = {name: value for name, value in os.environ.items() if name != "LMCACHE_DEVICE_BACKEND"}
    if backend is not None:
        variables["LMCACHE_DEVICE_BACKEND"] = backend
    quiet = {"LMCACHE_TRACK_USAGE": "false", "LMCACHE_DISABLE_BANNER": "1", "PYTHONUNBUFFERED": "1"}
    return variables | quiet


def free_port() -> int:
    """Return a port of the loopback interface that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """``lmcache server`` with a pool in shared memory, or without one."""

    def __init__(
        self,
        backend: str | None,
        folder: Path,
        *,
        shared_memory: bool = True,
        port: int | None = None,
        program: tuple[str, ...] = ("-m", "lmcache.cli.main"),
    ) -> None:
        self.port, self._http_port = port or free_port(), free_port()
        self.url = f"tcp://127.0.0.1:{self.port}"
        self.pool = f"lmcache_l1_pool_check_{os.getpid()}_{self.port}" if shared_memory else ""
        self.log = folder / f"server-{self.port}-{self._http_port}.log"
        command = [
            *(sys.executable, *program, "server"),
            *("--host", "127.0.0.1", "--port", str(self.port)),
            *("--http-host", "127.0.0.1", "--http-port", str(self._http_port)),
            *("--chunk-size", str(CHUNK_TOKENS), "--l1-size-gb", str(_POOL_GIGABYTES), "--no-l1-use-lazy"),
            *("--eviction-policy", "LRU", "--worker-reap-timeout-seconds", "0"),
            *("--supported-transfer-mode", "auto", "--shm-name", self.pool),
        ]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, env=environment(backend), stdout=log, stderr=subprocess.STDOUT)

    def await_up(self) -> None:
        """Return when the server answers.

        Raises:
            ProcessEnded: it has ended instead, or has not come up in time.
        """
        deadline = time.monotonic() + _START_SECONDS
        while True:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise ProcessEnded(f"`lmcache server` did not start:\n{tail(self.log)}")
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self._http_port}/healthcheck", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)  # a process that listens tells nobody

    def stop(self) -> None:
        """End the server in order."""
        end(self.process, signal.SIGTERM)

    def kill(self) -> None:
        """End the server as a crash would."""
        end(self.process, signal.SIGKILL)


class WorkerProcess:
    """A :class:`lmcache_hostcpu.check.worker.Worker` in its own process."""

    def __init__(
        self,
        rank: int,
        ranks: int,
        backend: str | None,
        folder: Path,
        *,
        seconds: float = REQUEST_SECONDS,
        program: tuple[str, ...] = ("-m", "lmcache_hostcpu.check.worker"),
    ) -> None:
        self.rank = rank
        self.log = folder / f"worker-{rank}-{time.monotonic_ns()}.log"
        self._log = self.log.open("wb")
        self.process = subprocess.Popen(
            [sys.executable, *program],
            env=environment(backend),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.send("start", rank=rank, ranks=ranks, seconds=seconds)

    def send(self, command: str, **arguments: Any) -> None:
        """Give a command without waiting for its answer."""
        if self.process.stdin is None:
            raise ProcessEnded("the worker has no input")
        try:
            self.process.stdin.write(json.dumps({"do": command, "with": arguments}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise ProcessEnded(f"worker {self.rank} has ended:\n{tail(self.log)}") from error

    def answer(self) -> Any:
        """Return the answer to the oldest command that has none yet.

        Raises:
            ProcessEnded: the worker has ended instead.
            RuntimeError: the command failed; the text is the worker's.
        """
        line = self.process.stdout.readline() if self.process.stdout is not None else ""
        if not line:
            raise ProcessEnded(f"worker {self.rank} has ended:\n{tail(self.log)}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(str(answer["error"]))
        return answer["result"]

    def call(self, command: str, **arguments: Any) -> Any:
        """Give a command and return its answer; errors as of :meth:`answer`."""
        self.send(command, **arguments)
        return self.answer()

    def started(self) -> None:
        """Take the answer to the start; errors as of :meth:`answer`."""
        self.answer()

    def stop(self) -> None:
        """End the worker in order: its input ends."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        end(self.process, None)
        self._close()

    def kill(self) -> None:
        """End the worker as a crash would."""
        end(self.process, signal.SIGKILL)
        self._close()

    def _close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout, self._log):
            if stream is not None and not stream.closed:
                stream.close()


def end(process: subprocess.Popen[Any], how: signal.Signals | None) -> None:
    """Send a signal, if any, and wait; a process that does not end is killed."""
    if how is not None and process.poll() is None:
        process.send_signal(how)
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def tail(log: Path, lines: int = 12) -> str:
    """Return the end of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
