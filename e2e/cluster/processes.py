"""Long-running programs of the node: started apart from every terminal, recorded, and recognised again.

A record is the line of `/proc/<pid>/stat` that the process wrote of itself before it became the program: pid and start
time together name a process for the life of the machine's boot (proc(5)). There is no moment at which a program runs
and is not recorded, so one that outlives a killed `up` is still found.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import paths
from e2e.cluster.errors import ClusterError

_RECORD_THEN_EXEC = 'read -r stat < /proc/$$/stat; echo "$stat" > "$0" && exec "$@"'
_START_TIME_FIELD = 22
_LAST_LINES = 15
_START_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True)
class Process:
    """A running process: its pid and its start time in clock ticks since boot."""

    pid: int
    start_ticks: int

    def is_alive(self) -> bool:
        """Tell whether this very process still runs (a zombie does not)."""
        stat = _read_stat(self.pid)
        return stat is not None and stat.process == self and stat.state not in ("Z", "X")

    def stop(self, *, grace_seconds: float) -> None:
        """Ask the process to end, and end it when it has not done so within the grace."""
        for number, wait_seconds in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, 10.0)):
            if not self.is_alive():
                return
            os.kill(self.pid, number)
            await_condition(lambda: not self.is_alive(), timeout_seconds=wait_seconds)


@dataclass(frozen=True)
class _Stat:
    process: Process
    state: str


@dataclass(frozen=True)
class Service:
    """A program that the node keeps running, under a name of its own."""

    name: str
    arguments: Sequence[str | Path]

    @property
    def log(self) -> Path:
        """Where everything it prints goes."""
        return paths.LOGS / f"{self.name}.log"

    @property
    def record(self) -> Path:
        """Where its process is recorded."""
        return paths.PROCESS_RECORDS / self.name

    def process(self) -> Process | None:
        """Return the recorded process if it is alive."""
        return recorded(self.record)

    def start(self) -> bool:
        """Start the program unless it runs; return whether it had to be started."""
        if self.process() is not None:
            return False
        for folder in (paths.LOGS, paths.PROCESS_RECORDS):
            folder.mkdir(parents=True, exist_ok=True)
        self.record.unlink(missing_ok=True)
        line = [str(argument) for argument in self.arguments]
        with self.log.open("ab") as log:
            child = subprocess.Popen(
                ["/bin/sh", "-c", _RECORD_THEN_EXEC, self.record, *line],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )
        await_condition(
            lambda: self.process() is not None or child.poll() is not None, timeout_seconds=_START_PATIENCE_SECONDS
        )
        return True

    def last_lines(self) -> str:
        """Return the end of its log, for error messages."""
        if not self.log.exists():
            return f"({self.log} does not exist)"
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - 16384))
            lines = log.read().decode(errors="replace").splitlines()
        return "\n".join([f"… {self.log}:", *lines[-_LAST_LINES:]])

    def await_ready(self, is_ready: Callable[[], bool], *, timeout_seconds: float) -> None:
        """Wait until the program answers.

        Raises:
            ClusterError: it ended, or did not answer in time; the message carries the end of its log.
        """
        deadline = time.monotonic() + timeout_seconds
        while not is_ready():
            if self.process() is None:
                raise ClusterError(f"{self.name} ended before it was ready:\n{self.last_lines()}")
            if time.monotonic() > deadline:
                raise ClusterError(f"{self.name} was not ready within {timeout_seconds:.0f} s:\n{self.last_lines()}")
            time.sleep(0.1)


def recorded(record: Path) -> Process | None:
    """Return the process that a record names if it is alive."""
    try:
        process = _parse_stat(record.read_text()).process
    except (OSError, ValueError, IndexError):
        # No record, or one cut short by a machine that went down: there is no such process.
        return None
    return process if process.is_alive() else None


def with_argument(argument: str) -> Iterator[Process]:
    """Yield every running process that has this word in its command line."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # ended meanwhile
        if argument.encode() in words and (stat := _read_stat(int(entry.name))) is not None:
            yield stat.process


def identify(pid: int) -> Process | None:
    """Return the running process of this pid."""
    stat = _read_stat(pid)
    return stat.process if stat is not None else None


def await_condition(is_met: Callable[[], bool], *, timeout_seconds: float) -> bool:
    """Look again every 50 ms until the condition is met or the time is over; return whether it is met."""
    deadline = time.monotonic() + timeout_seconds
    while not is_met():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _read_stat(pid: int) -> _Stat | None:
    try:
        return _parse_stat(Path(f"/proc/{pid}/stat").read_text())
    except OSError:
        return None


def _parse_stat(line: str) -> _Stat:
    # The name, field 2, stands in parentheses and may hold spaces and parentheses itself.
    pid, _, rest = line.partition(" (")
    fields = rest.rpartition(")")[2].split()
    return _Stat(Process(int(pid), int(fields[_START_TIME_FIELD - 3])), fields[0])
