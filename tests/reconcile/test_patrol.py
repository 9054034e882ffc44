"""The rounds: they notice what no event told, and one lost probe is no news."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator.core.couchbase_state import LoginState
from couchbase_lm_operator.memory import Memories
from couchbase_lm_operator.patrol import Patrol
from couchbase_lm_operator.work_queue import Key, WorkQueue

if TYPE_CHECKING:
    from tests.reconcile.world import World


async def _no_pass(_: Key) -> None:
    raise AssertionError("no workers run in these tests")


def _patrol(world: World, memories: Memories) -> Patrol:
    queue = WorkQueue(_no_pass, workers=1, clock=time.monotonic)
    return Patrol(world.cluster, (world.namespace,), queue, memories, lambda _: None)


async def test_a_resource_that_no_event_told_of_is_found(world: World) -> None:
    memories = Memories()
    created = await world.create()
    patrol = _patrol(world, memories)
    await patrol.sweep()
    assert patrol.queue.depth == 1
    quiet = _patrol(world, memories)
    memories.of(Key(world.namespace, "demo")).seen_version = created["metadata"]["resourceVersion"]
    await quiet.sweep()
    assert quiet.queue.depth == 0


async def test_a_reference_that_appears_changes_or_goes_wakes_the_resource(world: World) -> None:
    memories = Memories()
    memory = memories.of(Key(world.namespace, "demo"))
    memory.references = {("Secret", "later"): ""}
    memory.troubled_since = 1.0

    async def depth_after_a_look() -> int:
        patrol = _patrol(world, memories)
        await patrol.look_at_references()
        return patrol.queue.depth

    assert await depth_after_a_look() == 0
    await world.write_secret("later", key="value")
    assert await depth_after_a_look() == 1
    assert memory.troubled_since is None
    assert await depth_after_a_look() == 0
    await world.write_secret("later", key="other")
    assert await depth_after_a_look() == 1
    await world.delete("Secret", "later")
    assert await depth_after_a_look() == 1


@dataclass
class _Couchbase:
    """Access to a cluster whose probe says what the test wants."""

    login: LoginState
    goal: Any = field(default_factory=lambda: type("Goal", (), {"connection_string": "couchbase://x"}))

    async def probe(self) -> LoginState:
        return self.login


async def test_two_lost_probes_are_news_and_one_success_is(world: World) -> None:
    memories = Memories()
    memory = memories.of(Key(world.namespace, "demo"))
    proven = LoginState(("node",), ())
    couchbase = _Couchbase(proven)
    memory.couchbase = couchbase  # type: ignore[assignment]

    async def probe(login: LoginState) -> tuple[int, bool | None]:
        couchbase.login = login
        patrol = _patrol(world, memories)
        await patrol.probe_caches()
        return patrol.queue.depth, memory.cache.is_healthy if memory.cache else None

    lost = replace(proven, proven_nodes=(), missing_nodes=("node",), detail="Node does not answer.")
    assert await probe(proven) == (1, True)
    assert await probe(proven) == (0, True)
    assert await probe(lost) == (0, True)
    assert await probe(lost) == (1, False)
    assert await probe(lost) == (0, False)
    assert await probe(proven) == (1, True)
