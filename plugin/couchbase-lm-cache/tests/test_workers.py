"""Steps that are put off: they wait beside the threads, not on them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from couchbase_lm_cache.tasks import Task
from couchbase_lm_cache.workers import WorkerPool

WAIT_SECONDS = 5.0


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    pool = WorkerPool("test", 1)
    yield pool
    pool.close(WAIT_SECONDS)


def task(deadline_seconds: float = 60.0) -> Task[None]:
    return Task(time.monotonic() + deadline_seconds, [], lambda: None, lambda *_: None)


def threads() -> int:
    return sum("couchbase-lm-test" in thread.name for thread in threading.enumerate())


def test_steps_run_in_the_order_of_their_moments_and_hold_up_nobody(pool: WorkerPool) -> None:
    done: list[str] = []
    last = threading.Event()
    owner = task()
    assert threads() == 1
    pool.put_off(owner, last.set, 0.3)
    pool.put_off(owner, lambda: done.append("second"), 0.2)
    pool.put_off(owner, lambda: done.append("first"), 0.1)
    pool.submit(owner, lambda: done.append("at once"))
    assert last.wait(WAIT_SECONDS)
    assert done == ["at once", "first", "second"]
    assert threads() == 2


def test_a_step_comes_at_the_deadline_at_the_latest_though_its_task_has_ended(pool: WorkerPool) -> None:
    concluded = threading.Event()
    owner = task(deadline_seconds=0.1)
    pool.put_off(owner, concluded.set, 60.0)
    owner.end()
    assert concluded.wait(WAIT_SECONDS)


def test_closing_forgets_what_is_put_off(pool: WorkerPool) -> None:
    concluded = threading.Event()
    pool.put_off(task(), concluded.set, 0.2)
    begun = time.monotonic()
    pool.close(WAIT_SECONDS)
    assert time.monotonic() - begun < WAIT_SECONDS / 2
    pool.put_off(task(), concluded.set, 0.0)
    assert not concluded.wait(0.4)
