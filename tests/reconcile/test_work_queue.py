"""The queue: one pass per resource at a time, no lost wake-up, delays with one deadline per key."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from couchbase_lm_operator.work_queue import Key, WorkQueue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

A = Key("ns", "a")
B = Key("ns", "b")


@asynccontextmanager
async def running(handle: Callable[[Key], Awaitable[float | None]], *, workers: int = 2) -> AsyncIterator[WorkQueue]:
    queue = WorkQueue(handle, workers=workers, clock=time.monotonic)
    task = asyncio.create_task(queue.run())
    try:
        yield queue
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_key_added_twice_before_its_pass_is_run_once() -> None:
    seen: list[Key] = []
    done = asyncio.Event()

    async def handle(key: Key) -> None:
        seen.append(key)
        if key == B:
            done.set()

    async with running(handle, workers=1) as queue:
        queue.add(A)
        queue.add(A)
        queue.add(B)
        await done.wait()
    assert seen == [A, B]


async def test_a_key_added_during_its_pass_runs_once_more_and_never_beside_itself() -> None:
    started, release, finished = asyncio.Event(), asyncio.Event(), asyncio.Event()
    passes = beside = 0

    async def handle(_: Key) -> None:
        nonlocal passes, beside
        passes += 1
        beside += 1
        assert beside == 1
        started.set()
        await release.wait()
        beside -= 1
        if passes == 2:
            finished.set()

    async with running(handle) as queue:
        queue.add(A)
        await started.wait()
        queue.add(A)
        queue.add(A)
        release.set()
        await finished.wait()
        await asyncio.sleep(0)
    assert passes == 2


async def test_two_keys_run_side_by_side() -> None:
    both = asyncio.Barrier(2)

    async def handle(_: Key) -> None:
        async with asyncio.timeout(5):
            await both.wait()

    met = asyncio.Event()

    async def handle_and_tell(key: Key) -> None:
        await handle(key)
        met.set()

    async with running(handle_and_tell) as queue:
        queue.add(A)
        queue.add(B)
        async with asyncio.timeout(5):
            await met.wait()


async def test_the_delay_that_a_pass_returns_brings_the_key_back() -> None:
    times: list[float] = []
    done = asyncio.Event()

    async def handle(_: Key) -> float | None:
        times.append(time.monotonic())
        if len(times) == 2:
            done.set()
            return None
        return 0.05

    async with running(handle) as queue:
        queue.add(A)
        await done.wait()
    assert times[1] - times[0] >= 0.05


async def test_the_earliest_delay_wins_and_a_pass_clears_it() -> None:
    seen: list[Key] = []
    done = asyncio.Event()

    async def handle(key: Key) -> None:
        seen.append(key)
        if key == B:
            done.set()

    async with running(handle, workers=1) as queue:
        queue.add_after(A, 30)
        queue.add_after(A, 0.01)
        queue.add_after(A, 0.02)
        queue.add_after(B, 0.2)
        async with asyncio.timeout(5):
            await done.wait()
    assert seen == [A, B]


async def test_the_age_tells_of_a_stuck_pass() -> None:
    started = asyncio.Event()

    async def handle(_: Key) -> None:
        started.set()
        await asyncio.Event().wait()

    async with running(handle, workers=1) as queue:
        assert queue.oldest_age_seconds() == 0
        queue.add(A)
        await started.wait()
        queue.add(B)
        assert queue.depth == 1
        assert queue.oldest_age_seconds() > 0


async def test_it_stops_even_when_a_wake_up_meets_the_end() -> None:
    async def handle(_: Key) -> float | None:
        return 30.0

    for _ in range(200):
        queue = WorkQueue(handle, workers=1, clock=time.monotonic)
        task = asyncio.create_task(queue.run())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        queue.add_after(A, 20.0)
        await asyncio.sleep(0)
        task.cancel()
        async with asyncio.timeout(2):
            with suppress(asyncio.CancelledError):
                await task
