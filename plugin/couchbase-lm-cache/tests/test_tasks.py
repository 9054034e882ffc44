"""Tasks end once, in time, and nobody touches their memory afterwards."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from couchbase_lm_cache.buffers import GuardedBuffer
from couchbase_lm_cache.errors import BufferRevokedError
from couchbase_lm_cache.tasks import Countdown, DeadlineWatch, Task, TaskTable
from couchbase_lm_cache.workers import WorkerPool


class Bell:
    """Counts notifications, and lets a test wait for one."""

    def __init__(self) -> None:
        self.rung = threading.Semaphore(0)

    def notify(self) -> None:
        self.rung.release()


@pytest.fixture
def watch() -> Iterator[DeadlineWatch]:
    watch = DeadlineWatch()
    yield watch
    watch.close()


@pytest.fixture
def bell() -> Bell:
    return Bell()


@pytest.fixture
def table(watch: DeadlineWatch, bell: Bell) -> TaskTable[str]:
    return TaskTable(bell, watch)


def test_a_result_is_there_before_the_bell_and_handed_out_once(table: TaskTable[str], bell: Bell) -> None:
    task = table.open(60, [], lambda: "done")
    assert table.take(task.id) is None
    task.end()
    task.end()
    assert bell.rung.acquire(timeout=5)
    assert table.take(task.id) == "done"
    assert table.take(task.id) is None
    assert not bell.rung.acquire(blocking=False)


def test_a_hung_task_ends_at_its_deadline(table: TaskTable[str], bell: Bell) -> None:
    begun = time.monotonic()
    patient = table.open(60, [], lambda: "patient")
    hung = [table.open(0.2, [], lambda: "late") for _ in range(20)]
    for _ in hung:
        assert bell.rung.acquire(timeout=5)
    assert 0.2 <= time.monotonic() - begun < 3
    assert table.take_all() == {task.id: "late" for task in hung}
    assert not patient.ended.is_set()


def test_after_the_end_memory_is_out_of_reach(table: TaskTable[str]) -> None:
    memory = bytearray(8)
    buffer = GuardedBuffer(memoryview(memory))
    task = table.open(60, [buffer], lambda: "x")
    buffer.fill(0, b"ab")
    task.end()
    for access in (lambda: buffer.fill(0, b"zz"), lambda: buffer.copy(0, 2)):
        with pytest.raises(BufferRevokedError):
            access()
    assert memory == b"ab\0\0\0\0\0\0"


def test_ending_waits_for_the_access_under_way(table: TaskTable[str]) -> None:
    buffer = GuardedBuffer(memoryview(bytearray(8)))
    task = table.open(60, [buffer], lambda: "x")
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with buffer.open():
            inside.set()
            leave.wait(5)

    holder = threading.Thread(target=hold)
    ender = threading.Thread(target=task.end)
    holder.start()
    assert inside.wait(5)
    ender.start()
    ender.join(0.1)
    assert ender.is_alive()
    leave.set()
    ender.join(5)
    holder.join(5)
    assert not ender.is_alive()
    assert buffer.is_revoked


def test_a_closed_table_ends_old_and_new_tasks(table: TaskTable[str], bell: Bell) -> None:
    old = table.open(60, [], lambda: "old")
    table.close()
    new = table.open(60, [], lambda: "new")
    assert table.take_all() == {old.id: "old", new.id: "new"}
    assert table.running() == []
    assert bell.rung.acquire(timeout=5)
    assert not bell.rung.acquire(blocking=False), "a descriptor that may be closed was signalled"


def test_unclaimed_results_do_not_pile_up(table: TaskTable[str]) -> None:
    for _ in range(9000):
        table.open(60, [], lambda: "x").end()
    assert len(table.take_all()) == 8192


def test_a_step_that_breaks_ends_its_task_and_spares_the_thread(table: TaskTable[str], bell: Bell) -> None:
    pool = WorkerPool("test", 1)

    def broken() -> None:
        raise RuntimeError("defect")

    first = table.open(60, [], lambda: "ended early")
    pool.submit(first, broken)
    assert bell.rung.acquire(timeout=5)
    second = table.open(60, [], lambda: "fine")
    pool.submit(second, second.end)
    assert bell.rung.acquire(timeout=5)
    assert table.take_all() == {first.id: "ended early", second.id: "fine"}
    pool.close(5)


def test_steps_of_ended_tasks_are_skipped(table: TaskTable[str]) -> None:
    ran: list[Any] = []
    pool = WorkerPool("test", 1)
    task = table.open(60, [], lambda: "x")
    task.end()
    pool.submit(task, lambda: ran.append(1))
    pool.close(5)
    assert ran == []


def test_a_countdown_calls_once_at_zero() -> None:
    calls: list[int] = []
    Countdown(0, lambda: calls.append(0))
    countdown = Countdown(2, lambda: calls.append(2))
    countdown.one_done()
    assert calls == [0]
    countdown.one_done()
    assert calls == [0, 2]


def test_an_ended_task_keeps_nothing_alive_that_its_caller_gave(table: TaskTable[str]) -> None:
    """It may stay with the watch until the deadline of an older task, and a lookup holds thousands of keys."""

    class Keys:
        pass

    def open_one() -> tuple[Task[str], weakref.ref[Keys]]:
        keys = Keys()
        return table.open(60, [], lambda: repr(keys)), weakref.ref(keys)

    table.open(50, [], lambda: "older")
    task, keys = open_one()
    task.end()
    task.end()
    gc.collect()
    assert keys() is None
    assert len(table.take_all()) == 1
