"""Deleting a resource: cached data stays unless asked otherwise, and nothing hangs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from couchbase_lm_operator import names, removal
from tests.reconcile.world import until

if TYPE_CHECKING:
    import pytest

    from tests.reconcile.world import World


async def _is_gone(world: World) -> bool:
    return await world.cluster.get(names.KIND, world.namespace, "demo") is None


async def test_retain_needs_no_finalizer_keeps_the_bucket_and_removes_the_user(world: World) -> None:
    async with world.operator():
        await world.serve()
        status = (await world.status())["couchbase"]
        assert (await world.get(names.KIND, "demo"))["metadata"].get("finalizers") is None
        await world.delete(names.KIND, "demo")
        assert await _is_gone(world)

        async def is_user_gone() -> bool:
            return not await world.has_user(status["user"])

        await until(is_user_gone)
        assert await world.has_bucket(status["bucket"]["name"])


async def test_retain_is_deleted_at_once_without_an_operator(world: World) -> None:
    async with world.operator():
        await world.serve()
    await world.delete(names.KIND, "demo")
    assert await _is_gone(world)


async def test_delete_removes_our_bucket_and_user_before_the_resource_goes(world: World) -> None:
    async with world.operator():
        await world.serve(couchbase__bucket={"reclaimPolicy": "Delete"})
        status = (await world.status())["couchbase"]
        assert (await world.get(names.KIND, "demo"))["metadata"]["finalizers"] == [names.FINALIZER]
        await world.delete(names.KIND, "demo")
        await until(lambda: _is_gone(world))
        assert not await world.has_bucket(status["bucket"]["name"])
        assert not await world.has_user(status["user"])


async def test_delete_waits_for_an_operator(world: World) -> None:
    async with world.operator():
        await world.serve(couchbase__bucket={"reclaimPolicy": "Delete"})
        bucket = (await world.status())["couchbase"]["bucket"]["name"]
    await world.delete(names.KIND, "demo")
    assert not await _is_gone(world)
    async with world.operator():
        await until(lambda: _is_gone(world))
    assert not await world.has_bucket(bucket)


async def test_delete_spares_a_bucket_that_was_made_anew_by_somebody_else(world: World) -> None:
    async with world.operator():
        await world.serve(couchbase__bucket={"reclaimPolicy": "Delete"})
        bucket = (await world.status())["couchbase"]["bucket"]["name"]
    await asyncio.to_thread(world.replace_bucket, bucket)
    await world.delete(names.KIND, "demo")
    async with world.operator():
        await until(lambda: _is_gone(world))
    assert await world.has_bucket(bucket)


async def test_changing_the_policy_back_to_retain_removes_the_finalizer(world: World) -> None:
    async with world.operator():
        await world.serve(couchbase__bucket={"reclaimPolicy": "Delete"})
        await world.edit(spec={"couchbase": {"bucket": {"reclaimPolicy": "Retain"}}})

        async def is_free() -> bool:
            return not (await world.get(names.KIND, "demo"))["metadata"].get("finalizers")

        await until(is_free)


async def test_a_couchbase_that_is_gone_does_not_hold_the_resource_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "PATIENCE_SECONDS", 3.0)
    async with world.operator():
        await world.serve(couchbase__bucket={"reclaimPolicy": "Delete"})
        world.couchbase.faults.kill_node(0)
        await world.delete(names.KIND, "demo")
        found = await world.until_deleting()
        assert found["reason"] == "Deleting"
        await until(lambda: _is_gone(world))
        events, _ = await world.cluster.objects("Event", world.namespace)
        assert "RemovalAbandoned" in {each["reason"] for each in events}


async def test_a_resource_made_again_takes_its_bucket_back(world: World) -> None:
    async with world.operator():
        await world.serve()
        before = (await world.status())["couchbase"]["bucket"]
    await world.delete(names.KIND, "demo")
    await world.clear_children()
    async with world.operator():
        await world.create()
        await world.until_condition("CredentialsReady", "True")
        after = (await world.status())["couchbase"]["bucket"]
    assert (after["name"], after["uuid"]) == (before["name"], before["uuid"])


async def test_a_deletion_seen_while_couchbase_is_down_is_finished_later(world: World) -> None:
    async with world.operator():
        await world.serve()
        user = (await world.status())["couchbase"]["user"]
        world.couchbase.faults.kill_node(0)
        await world.delete(names.KIND, "demo")
        assert await _is_gone(world)
        await asyncio.sleep(1.0)
        world.couchbase.faults.revive_node(0)

        async def is_user_gone() -> bool:
            return not await world.has_user(user)

        await until(is_user_gone)
