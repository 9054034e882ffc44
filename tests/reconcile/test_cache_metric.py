"""lmcb_cache_healthy says what is known of the cache now, and nothing where nothing is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from couchbase_lm_operator.core.progress import HEALTHY, CacheHealth
from couchbase_lm_operator.memory import Memories
from couchbase_lm_operator.metrics import REGISTRY
from couchbase_lm_operator.work_queue import Key

if TYPE_CHECKING:
    from tests.reconcile.world import World


def _told(namespace: str) -> float | None:
    return REGISTRY.get_sample_value("lmcb_cache_healthy", {"namespace": namespace, "name": "demo"})


def test_each_finding_is_told_and_what_is_not_known_is_not() -> None:
    memories, key = Memories(), Key("of-the-metric", "demo")
    memory = memories.of(key)
    lost, unknown = (CacheHealth(is_healthy=is_healthy, detail="Told.") for is_healthy in (False, None))
    for found, told in ((None, None), (HEALTHY, 1.0), (lost, 0.0), (unknown, None), (HEALTHY, 1.0), (None, None)):
        memory.note_cache(found)
        assert (memory.cache, _told(key.namespace)) == (found, told)
    memory.note_cache(HEALTHY)
    memories.forget(key)
    assert _told(key.namespace) is None


async def test_another_cache_that_is_not_provisioned_yet_has_no_health(world: World) -> None:
    async with world.operator():
        await world.serve()
        assert _told(world.namespace) == 1.0
        world.couchbase.faults.kill_node(0)
        await world.edit(spec={"couchbase": {"scope": "other"}})
        await world.until_condition("CacheHealthy", "absent")
        assert _told(world.namespace) is None
