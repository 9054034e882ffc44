"""Many loads under changing faults: whatever happens, no wrong byte, no hang, no write after the end."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest
from conftest import Place
from lmcache.v1.memory_management import MemoryObj
from lmcache_parts import KIB, MIB, Driver, L1Memory, content, key

from e2e.couchbase_emulator.running import RunningEmulator

SECONDS = 6.0
OBJECTS = 24
REUSED = 0x5A  # what the next owner of the memory writes


class Chaos:
    """Switches faults on and off in a thread until the block ends."""

    def __init__(self, emulator: RunningEmulator, dice: random.Random) -> None:
        self._faults = emulator.faults
        self._dice = dice
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)
        self._faults.clear()

    def _run(self) -> None:
        kinds = ("slow", "drop", "corrupt_values", "cut_values", "disconnect", "not_my_vbucket", "none")
        while not self._stop.wait(self._dice.uniform(0.02, 0.1)):
            kind = self._dice.choice(kinds)
            if kind == "slow":
                self._faults.slow_seconds = self._dice.uniform(0.0, 0.6)
            elif kind == "none":
                self._faults.clear()
            else:
                setattr(self._faults, kind, self._dice.randint(1, 6))


def reuse(memory: MemoryObj) -> None:
    """Write what the next owner of the memory would."""
    memory.byte_array.cast("B")[:] = bytes([REUSED]) * memory.get_size()


def load_some(driver: Driver, targets: list[MemoryObj], expected: list[bytes], dice: random.Random) -> int:
    """Load a few objects, give one of them up now and then, and reuse all memory; returns the hits."""
    picked = dice.sample(range(OBJECTS), 8)
    names = [key(number) for number in picked]
    begun = time.monotonic()
    task = driver.adapter.submit_load_task(names, [targets[number] for number in picked])
    given_up = picked[0] if dice.random() < 0.5 else None
    if given_up is not None:
        time.sleep(dice.uniform(0.0, 0.02))  # so that some are given up in the middle
        driver.adapter.submit_unlock(names[:1])
        reuse(targets[given_up])
    loaded = driver.loaded(task, len(picked))
    assert time.monotonic() - begun < 3, "a load outlived its deadline"
    for number, bit in zip(picked, loaded, strict=True):
        if number == given_up:
            assert set(content(targets[number])) == {REUSED}, "memory was written after it was given up"
        else:
            assert not bit or content(targets[number]) == expected[number], "a wrong byte was called loaded"
            reuse(targets[number])
    return sum(loaded)


@pytest.mark.parametrize("seed", [1, 2])
def test_loads_in_chaos(open_adapter: Callable[..., Driver], l1: L1Memory, place: Place, seed: int) -> None:
    driver = open_adapter(task_deadline_seconds=0.6, kv_timeout_seconds=0.5, shard_size_bytes=256 * KIB)
    dice = random.Random(seed)
    sizes = [dice.choice((64 * KIB, 300 * KIB, MIB, 3 * MIB)) for _ in range(OBJECTS)]
    originals, targets = l1.filled(*sizes, seed=seed), l1.take(*sizes)
    # One at a time: stores have a short deadline here, too.
    assert all(driver.store([key(n)], [item]).is_successful() for n, item in enumerate(originals))
    expected = [content(item) for item in originals]
    end, hits = time.monotonic() + SECONDS, 0
    with Chaos(place.emulator, random.Random(seed)):
        while time.monotonic() < end:
            hits += load_some(driver, targets, expected, dice)
    time.sleep(1.2)  # longer than any call that may still be under way
    assert all(set(content(item)) <= {REUSED, 0} for item in targets), "memory was written after its load had ended"
    deadline = time.monotonic() + 20
    while not driver.adapter.report_status()["is_healthy"]:
        assert time.monotonic() < deadline, "it did not recover"
        time.sleep(0.05)
    hits += sum(load_some(driver, targets, expected, dice) for _ in range(10))
    assert hits > 0
