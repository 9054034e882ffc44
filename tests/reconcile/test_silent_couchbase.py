"""A Couchbase that takes connections and says nothing, or little: nobody else waits for it, and it heals by itself."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from couchbase_lm_operator.visits import PATIENCE_SECONDS
from tests.couchbase_gate import Way, gate
from tests.reconcile.world import until

if TYPE_CHECKING:
    from tests.reconcile.world import World

PROMPTLY_SECONDS = 5.0


async def _repair_seconds(world: World, name: str) -> float:
    """Delete a Service and scale; return how long it takes until both are as the resource says."""
    replicas = (await world.get("Deployment", name))["spec"]["replicas"] + 1
    started = time.monotonic()
    await world.delete("Service", name)
    await world.edit(name, spec={"replicas": replicas})

    async def is_repaired() -> bool:
        deployment = await world.get("Deployment", name)
        service = await world.cluster.get("Service", world.namespace, name)
        return service is not None and deployment["spec"]["replicas"] == replicas

    await until(is_repaired)
    return time.monotonic() - started


async def test_drift_and_scaling_do_not_wait_for_three_dead_hosts(world: World) -> None:
    async with (
        gate(way=Way.SILENT) as one,
        gate(way=Way.SILENT) as two,
        gate(way=Way.SILENT) as three,
        world.operator(),
    ):
        await world.create(couchbase__managementEndpoints=[one.url, two.url, three.url])
        await until(lambda: world.cluster.get("Deployment", world.namespace, "demo"))
        took = [await _repair_seconds(world, "demo") for _ in range(4)]
        assert max(took) < PROMPTLY_SECONDS, took


@pytest.mark.parametrize("way", [Way.SILENT, Way.DRIBBLING])
async def test_resources_of_silent_clusters_hold_no_worker(world: World, way: Way) -> None:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(world.operator())
        for number in range(6):
            silent = await stack.enter_async_context(gate(way=way))
            for part in ("a", "b"):
                await world.create(f"silent-{number}{part}", couchbase__managementEndpoints=[silent.url])
        started = time.monotonic()
        await world.create()
        await world.until_condition("CredentialsReady", "True")
        assert time.monotonic() - started < 2 * PROMPTLY_SECONDS
        took = [await _repair_seconds(world, name) for name in ("demo", "silent-0a", "demo", "silent-5b")]
        assert max(took) < PROMPTLY_SECONDS, took


@pytest.mark.parametrize("way", [Way.SILENT, Way.DRIBBLING])
async def test_a_couchbase_that_falls_silent_is_told_and_picked_up_again(world: World, way: Way) -> None:
    async with gate(world.couchbase.management_urls[0]) as way_in, world.operator(resync_seconds=2.0):
        await world.serve(couchbase__managementEndpoints=[way_in.url])
        way_in.way = way
        found = await world.until_condition("CouchbaseReachable", "False", "CouchbaseUnreachable", seconds=40)
        assert "spec.couchbase" in found["message"]
        assert (await world.condition("Ready"))["status"] == "True"
        seen = await _reasons(world, "CouchbaseReachable", seconds=6)
        assert seen == {"CouchbaseUnreachable"}  # looking again takes nothing back
        way_in.way = Way.OPEN
        await world.until_condition("CouchbaseReachable", "True", seconds=60)


async def _reasons(world: World, kind: str, seconds: float) -> set[str]:
    """Return the reasons that a condition has in a while."""
    found, end = set(), time.monotonic() + seconds
    while time.monotonic() < end:
        found.add((await world.condition(kind))["reason"])
        await asyncio.sleep(0.1)
    return found


async def test_a_couchbase_slower_than_a_pass_waits_is_provisioned_and_cleared_all_the_same(world: World) -> None:
    async with gate(world.couchbase.management_urls[0], delay_seconds=0.4) as slow, world.operator():
        await world.create(couchbase__managementEndpoints=[slow.url])
        await world.until_condition("CredentialsReady", "True", seconds=90)
        status = (await world.status())["couchbase"]
        assert status["bucket"]["created"] is True
        assert status["bucket"]["removedByOthersCount"] == 0
        assert world.couchbase.call(lambda emulator: sorted(emulator.cluster.buckets)) == [status["bucket"]["name"]]
        await world.delete("LMCacheCouchbase", "demo")

        async def is_cleared() -> bool:
            return not await world.has_user(status["user"])

        await until(is_cleared, seconds=60)


async def test_an_edit_that_leads_elsewhere_does_not_wait_for_the_silent_one(world: World) -> None:
    async with gate(way=Way.SILENT) as silent, world.operator():
        await world.create(couchbase__managementEndpoints=[silent.url])
        await silent.came.wait()
        endpoints = list(world.couchbase.management_urls)
        await world.edit(spec={"couchbase": {"managementEndpoints": endpoints}})
        await world.until_condition("CredentialsReady", "True", seconds=PROMPTLY_SECONDS)


async def test_a_creation_that_is_refused_again_and_again_does_not_wake_itself(world: World) -> None:
    for number in range(30):
        world.couchbase.create_bucket(f"b{number}", quota_mib=100)

    def refused() -> Any:
        return world.couchbase.call(lambda emulator: emulator.counters.rest_requests["POST /pools/default/buckets"])

    async with world.operator():
        await world.create()
        await world.until_condition("BucketReady", "False", "TooManyBuckets")
        before = refused()
        assert before > 0
        await asyncio.sleep(4)
        assert refused() - before <= 2
        assert not ((await world.status())["couchbase"]["bucket"]).get("clusterUUID")


@pytest.mark.parametrize(
    ("kind", "reason"), [("BucketReady", "TooManyBuckets"), ("CredentialsReady", "PasswordPolicyRefused")]
)
async def test_a_refusal_is_told_all_the_time_while_a_slow_couchbase_refuses_again_and_again(
    world: World, kind: str, reason: str
) -> None:
    if reason == "TooManyBuckets":
        for number in range(30):
            world.couchbase.create_bucket(f"b{number}", quota_mib=100)
    else:
        world.couchbase.call(lambda emulator: setattr(emulator.cluster.password_policy, "min_length", 500))

    async with gate(world.couchbase.management_urls[0], delay_seconds=0.5) as slow, world.operator():
        await world.create(couchbase__managementEndpoints=[slow.url])
        await world.until_condition(kind, "False", reason, seconds=60)
        tries = slow.connections
        assert await _reasons(world, kind, seconds=30) == {reason}
        assert slow.connections > tries + 1


async def test_a_resource_that_is_made_again_is_not_ready_by_what_was_known_of_the_one_before(world: World) -> None:
    async with gate(world.couchbase.management_urls[0]) as way_in, world.operator():
        await world.serve(couchbase__managementEndpoints=[way_in.url])
        way_in.way = Way.SILENT
        await world.delete("LMCacheCouchbase", "demo")
        await world.clear_children()
        await asyncio.sleep(PATIENCE_SECONDS + 1)  # the pass that removes the user leaves it to a visit
        await world.create(couchbase__managementEndpoints=[way_in.url])
        await until(lambda: world.cluster.get("Deployment", world.namespace, "demo"))
        await world.make_available()
        found = await world.until_condition("CouchbaseReachable", "False", "CouchbaseUnreachable", seconds=60)
        assert "spec.couchbase" in found["message"]
        assert (await world.condition("Ready"))["status"] == "False"
        assert not (await world.status())["couchbase"].get("provisionedDigest")
        way_in.way = Way.OPEN
        await world.until_condition("Ready", "True", seconds=60)
