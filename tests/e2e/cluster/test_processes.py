"""Programs of the node are recorded before they run, recognised by pid and start time, and stopped for good."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from e2e.cluster import paths
from e2e.cluster.errors import ClusterError
from e2e.cluster.processes import Process, Service, await_condition, recorded, with_argument


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "LOGS", tmp_path / "log")
    monkeypatch.setattr(paths, "PROCESS_RECORDS", tmp_path / "processes")


def sleeper(name: str, followed: str = "/dev/null") -> Service:
    return Service(name, ["tail", "-f", followed])


def running(service: Service) -> Process:
    process = service.process()
    assert process is not None
    return process


def test_started_once_and_found_again() -> None:
    service = sleeper("one")
    assert service.start()
    first = running(service)
    assert not service.start()
    assert running(sleeper("one")) == first
    assert os.getsid(first.pid) == first.pid, "it must not end with the terminal it was started from"
    first.stop(grace_seconds=5.0)


def test_killed_process_is_not_alive_even_as_a_zombie() -> None:
    service = sleeper("killed")
    service.start()
    process = running(service)
    os.kill(process.pid, signal.SIGKILL)
    assert await_condition(lambda: service.process() is None, timeout_seconds=5.0)
    assert not process.is_alive()


def test_another_process_with_the_recorded_pid_is_not_taken_for_it(tmp_path: Path) -> None:
    stat = Path("/proc/self/stat").read_text()
    record = tmp_path / "record"
    record.write_text(stat)
    own = recorded(record)
    assert own is not None
    assert own.pid == os.getpid()
    fields = stat.rpartition(")")[2].split()
    fields[19] = str(own.start_ticks + 1)
    record.write_text(f"{own.pid} (other (name)) {' '.join(fields)}")
    assert recorded(record) is None


@pytest.mark.parametrize("text", ["", "12", "garbage", "12 (x) S 1"])
def test_damaged_record_names_nobody(tmp_path: Path, text: str) -> None:
    record = tmp_path / "record"
    record.write_text(text)
    assert recorded(record) is None


def test_one_that_ignores_the_request_to_end_is_ended() -> None:
    service = Service("stubborn", ["/bin/sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"])
    service.start()
    process = running(service)
    process.stop(grace_seconds=0.3)
    assert not process.is_alive()


def test_early_end_is_told_with_the_end_of_the_log() -> None:
    service = Service("broken", ["/bin/sh", "-c", "echo the reason; exit 3"])
    service.start()
    with pytest.raises(ClusterError, match="the reason"):
        service.await_ready(lambda: False, timeout_seconds=5.0)


def test_processes_are_found_by_a_word_of_their_command_line(tmp_path: Path) -> None:
    marker = str(tmp_path / "marker")
    Path(marker).touch()
    service = sleeper("marked", marker)
    service.start()
    process = running(service)
    assert process in list(with_argument(marker))
    process.stop(grace_seconds=5.0)
    assert not [found for found in with_argument(marker) if found.is_alive()]
