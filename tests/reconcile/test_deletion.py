"""Deleting a resource: cached data stays unless asked otherwise, and nothing hangs."""

from __future__ import annotations

import asyncio
import base64
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.options import ClusterOptions

from couchbase_lm_operator import names, removal
from couchbase_lm_operator.errors import ClusterConflictError
from tests.reconcile.world import until

if TYPE_CHECKING:
    from tests.reconcile.world import Manifest, World


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


async def test_a_finalizer_is_never_put_on_a_resource_that_changed_since_it_was_read(world: World) -> None:
    read = await world.create()
    await world.edit(spec={"replicas": 3})
    with pytest.raises(ClusterConflictError):
        await world.cluster.set_finalizers(read, [names.FINALIZER])
    assert (await world.get(names.KIND, "demo"))["metadata"].get("finalizers") is None


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


async def test_delete_removes_a_bucket_that_is_still_warming_up(world: World) -> None:
    """Before the bucket carries our mark, only the record in status tells whose it is."""
    world.couchbase.faults.bucket_warmup_seconds = 600.0
    async with world.operator():
        await world.create(couchbase__bucket={"reclaimPolicy": "Delete"})
        await world.until_condition("BucketReady", "False", "BucketWarmingUp")
        bucket = (await world.status())["couchbase"]["bucket"]["name"]
        assert await world.has_bucket(bucket)
        await world.delete(names.KIND, "demo")
        await until(lambda: _is_gone(world))
    assert not await world.has_bucket(bucket)


async def test_delete_removes_a_bucket_that_was_just_being_created(world: World) -> None:
    world.couchbase.faults.bucket_warmup_seconds = 600.0
    world.couchbase.faults.http_slow_seconds = 0.5
    async with world.operator():
        await world.create(couchbase__bucket={"reclaimPolicy": "Delete"})

        async def intent() -> str:
            recorded = ((await world.status()).get("couchbase") or {}).get("bucket") or {}
            return "" if recorded.get("uuid") else str(recorded.get("name") or "")

        bucket = await until(intent)
        await world.delete(names.KIND, "demo")
        await until(lambda: _is_gone(world))
    world.couchbase.faults.clear()
    assert not await world.has_bucket(bucket)


async def test_delete_removes_what_was_made_before_the_spec_became_unusable(world: World) -> None:
    async with world.operator():
        await world.serve(couchbase__bucket={"reclaimPolicy": "Delete"})
        made = (await world.status())["couchbase"]
        await world.edit(spec={"engine": {"startupTimeout": "8d"}})
        await world.until_condition("Stalled", "True", "InvalidSpec")
        await world.delete(names.KIND, "demo")
        await until(lambda: _is_gone(world))
        assert not await world.has_bucket(made["bucket"]["name"])
        assert not await world.has_user(made["user"])


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


def _write_document(world: World, login: Manifest, bucket: str, keyspace: tuple[str, str]) -> None:
    """Write one document as an engine does: with the credentials of the Secret."""
    user, password = (base64.b64decode(login["data"][key]).decode() for key in ("username", "password"))
    cluster = Cluster.connect(world.couchbase.connection_string, ClusterOptions(PasswordAuthenticator(user, password)))
    try:
        scope, collection = keyspace
        documents = cluster.bucket(bucket).scope(scope).collection(collection)
        documents.upsert("chunk", {"cached": True}, timeout=timedelta(seconds=10))
    finally:
        cluster.close()


async def test_a_resource_applied_again_finds_its_kept_documents(world: World) -> None:
    async with world.operator():
        await world.serve()
        before = (await world.status())["couchbase"]
        bucket, keyspace = before["bucket"], (before["scope"], before["collection"])
        login = await world.get("Secret", before["secretName"])
        await asyncio.to_thread(_write_document, world, login, bucket["name"], keyspace)
        documents = world.couchbase.documents(bucket["name"], *keyspace)
        assert set(documents) == {b"chunk"}

        await world.delete(names.KIND, "demo")

        async def is_user_gone() -> bool:
            return not await world.has_user(before["user"])

        await until(is_user_gone)
        await world.clear_children()
        await world.serve()
        after = (await world.status())["couchbase"]["bucket"]
        assert (after["name"], after["uuid"], after["created"]) == (bucket["name"], bucket["uuid"], True)
        assert after["userRemovedByOthersCount"] == 0
        assert world.couchbase.documents(bucket["name"], *keyspace) == documents
        # the new password is another one, and opens the same collection
        renewed = await world.get("Secret", before["secretName"])
        assert renewed["data"]["password"] != login["data"]["password"]
        await asyncio.to_thread(_write_document, world, renewed, bucket["name"], keyspace)


async def test_a_resource_replaced_at_once_takes_its_bucket_back(world: World) -> None:
    async with world.operator():
        await world.serve()
        before = (await world.status())["couchbase"]["bucket"]
        await world.delete(names.KIND, "demo")
        await world.clear_children()
        await world.serve()
        after = (await world.status())["couchbase"]["bucket"]
        assert (after["uuid"], after["created"]) == (before["uuid"], True)
        assert after["userRemovedByOthersCount"] == 0


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
