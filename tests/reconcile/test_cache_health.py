"""CacheHealthy tells of the cache that pods use now, also while the spec is not followed, or admits that it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.reconcile.world import World

_LORA = {"engine": {"extraArgs": ["--enable-lora"]}}


async def _served(world: World, **spec: Any) -> None:
    """Bring a resource to Ready, edit its spec, and end the operator once it took that up."""
    async with world.operator():
        await world.serve()
        if spec:
            await world.edit(spec=spec)
            await world.until_condition("Ready", "Unknown" if spec.get("suspend") else "False")


@pytest.mark.parametrize("spec", [{"suspend": True}, _LORA], ids=["suspended", "refused"])
async def test_a_new_operator_looks_at_the_cache_of_pods_whose_spec_it_does_not_follow(
    world: World, spec: dict[str, Any]
) -> None:
    await _served(world, **spec)
    world.couchbase.faults.kill_node(0)
    async with world.operator():
        await world.until_condition("CacheHealthy", "False", "CacheUnreachable", seconds=10)
        world.couchbase.faults.revive_node(0)
        await world.until_condition("CacheHealthy", "True", seconds=10)


async def test_the_cache_is_looked_at_without_an_administrator(world: World) -> None:
    await _served(world)
    await world.delete("Secret", "cb-admin")
    world.couchbase.faults.kill_node(0)
    async with world.operator():
        await world.until_condition("CacheHealthy", "False", "CacheUnreachable", seconds=10)
        assert (await world.condition("CouchbaseReachable"))["reason"] == "SecretMissing"
        assert (await world.condition("Ready"))["status"] == "True"


async def test_what_a_new_operator_cannot_look_at_is_unknown(world: World) -> None:
    await _served(world, suspend=True)
    await world.edit(spec={"couchbase": {"scope": "other"}})
    async with world.operator():
        found = await world.until_condition("CacheHealthy", "Unknown", "CacheNotProbed", seconds=10)
        assert "another" in found["message"]
        await world.edit(spec={"couchbase": {"scope": None}})
        await world.until_condition("CacheHealthy", "True", seconds=10)
        events, _ = await world.cluster.objects("Event", world.namespace)
        assert "CacheNotProbed" not in {each["reason"] for each in events}


async def test_an_operator_that_knows_the_cache_goes_on_looking_at_it(world: World) -> None:
    async with world.operator():
        await world.serve()
        await world.edit(spec={"suspend": True, "couchbase": {"scope": "other"}})
        await world.until_condition("Suspended", "True")
        assert (await world.condition("CacheHealthy"))["status"] == "True"
        world.couchbase.faults.kill_node(0)
        await world.until_condition("CacheHealthy", "False", "CacheUnreachable", seconds=10)


async def test_a_secret_that_is_lost_while_suspended_makes_the_cache_unknown(world: World) -> None:
    await _served(world, suspend=True)
    await world.delete("Secret", "demo-couchbase")
    async with world.operator():
        found = await world.until_condition("CacheHealthy", "Unknown", "CacheNotProbed", seconds=10)
        assert "Secret demo-couchbase" in found["message"]
    assert await world.cluster.get("Secret", world.namespace, "demo-couchbase") is None
