"""Probes of the cache: many at once, and of whatever the pods use, whether or not the spec can be followed."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from couchbase_lm_operator.io import kv_login
from couchbase_lm_operator.memory import Memories
from couchbase_lm_operator.patrol import PROBES_PER_CLUSTER, Patrol
from couchbase_lm_operator.settings import Settings
from couchbase_lm_operator.work_queue import Key, WorkQueue
from tests.reconcile.world import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from tests.reconcile.world import World

_RESOURCES = 3 * PROBES_PER_CLUSTER


@dataclass
class _Silence:
    """A host that takes connections and never says a word."""

    authority: str
    open: int = 0
    most_open: int = 0


@asynccontextmanager
async def _silent_host() -> AsyncIterator[_Silence]:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        silence.open += 1
        silence.most_open = max(silence.most_open, silence.open)
        while await reader.read(1024):
            pass
        silence.open -= 1
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    silence = _Silence(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        yield silence
    finally:
        server.close()


async def test_many_probes_of_a_dead_cluster_take_few_timeouts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world.operator() as runtime:
        await world.serve()
        couchbase = runtime.memories.of(Key(world.namespace, "demo")).couchbase
    assert couchbase is not None
    monkeypatch.setattr(kv_login, "NODE_TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(kv_login, "SEED_HEAD_START_SECONDS", 0.1)
    lives: list[str] = []
    async with _silent_host() as first, _silent_host() as second, _silent_host() as third:
        goal = replace(
            couchbase.goal,
            connection_string=f"couchbase://{first.authority},{second.authority},{third.authority}",
        )
        memories = Memories()
        for number in range(_RESOURCES):
            memories.of(Key(world.namespace, f"demo-{number}")).couchbase = replace(couchbase, goal=goal)
        queue = WorkQueue(_no_pass, workers=1, clock=time.monotonic)
        started = time.monotonic()
        await Patrol(world.cluster, (world.namespace,), queue, memories, lives.append).probe_caches()
        one_by_one_seconds = _RESOURCES * 3 * kv_login.NODE_TIMEOUT_SECONDS
        assert time.monotonic() - started < one_by_one_seconds / 4
        assert queue.depth == _RESOURCES
        assert lives == ["probes"] * _RESOURCES
        assert 1 < first.most_open <= PROBES_PER_CLUSTER


async def test_a_lost_secret_is_back_within_ten_seconds_with_the_settings_of_an_installation(world: World) -> None:
    default = Settings.model_fields["reference_poll_seconds"].default
    async with world.operator(reference_poll_seconds=default):
        await world.serve()
        for _ in range(2):  # the second time at any moment between two looks
            await world.delete("Secret", "demo-couchbase")
            await until(lambda: world.cluster.get("Secret", world.namespace, "demo-couchbase"), seconds=10)


async def _no_pass(_: Key) -> None:
    raise AssertionError("no workers run in these tests")
