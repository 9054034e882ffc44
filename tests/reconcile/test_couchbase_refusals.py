"""What Couchbase refuses, as a person sees it in the resource, and that pods run on meanwhile."""

from __future__ import annotations

import asyncio
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from e2e.couchbase_emulator import running_emulator
from tests.reconcile.world import until

if TYPE_CHECKING:
    from tests.reconcile.world import World


async def _told(world: World, reason: str, *words: str) -> None:
    found = await world.until_condition("Ready", "False", reason)
    assert all(word in found["message"] for word in words), found["message"]
    await until(lambda: world.cluster.get("Deployment", world.namespace, "demo"))


async def test_a_quota_larger_than_free_is_refused_until_it_fits(world: World) -> None:
    async with world.operator():
        await world.create(couchbase__bucket={"memoryQuota": "100Gi"})
        await _told(world, "QuotaExceedsFree", "memoryQuota")
        await world.edit(spec={"couchbase": {"bucket": {"memoryQuota": "256Mi"}}})
        await world.until_condition("CredentialsReady", "True")
        assert (await world.status())["capacity"]["quota"] == "256Mi"


async def test_a_bucket_of_somebody_else_is_not_touched(world: World) -> None:
    world.couchbase.create_bucket("theirs")
    before = world.couchbase_mutations()
    async with world.operator():
        await world.create(couchbase__bucket={"name": "theirs"})
        await _told(world, "BucketNotOurs", "theirs", "Shared")
        assert world.couchbase_mutations() == before
        await world.edit(spec={"couchbase": {"bucket": {"management": "Shared"}}})
        await world.until_condition("CredentialsReady", "True")


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"uninitialised": True}, "CouchbaseNotInitialised"), ({"edition": "community"}, "CommunityEdition")],
)
async def test_a_cluster_that_cannot_be_used_is_told(world: World, options: dict[str, Any], reason: str) -> None:
    with running_emulator(memory_quota_mib=1024, **options) as emulator:
        world.couchbase = emulator
        await world.set_admin_secret()
        async with world.operator():
            await world.create()
            await _told(world, reason)


async def test_a_redirecting_endpoint_is_not_followed(world: World) -> None:
    world.couchbase.faults.http_redirect = -1
    async with world.operator():
        await world.create()
        await _told(world, "EndpointRedirects", "managementEndpoints")
        world.couchbase.faults.clear()
        await world.until_condition("CredentialsReady", "True", seconds=40)


async def test_the_api_server_is_no_endpoint(world: World) -> None:
    async with world.operator():
        await world.create(couchbase__managementEndpoints=[world.server.url])
        await _told(world, "EndpointForbidden", "API server")


async def test_an_endpoint_that_is_no_couchbase_is_told(world: World) -> None:
    async with world.operator() as runtime:
        await world.create(couchbase__managementEndpoints=[f"http://127.0.0.1:{runtime.http_port}"])
        await _told(world, "NotCouchbase", "managementEndpoints")


async def test_what_others_remove_is_made_again_once_and_then_left_to_them(world: World) -> None:
    async with world.operator():
        await world.serve()
        bucket = (await world.status())["couchbase"]["bucket"]
        await asyncio.to_thread(_remove_bucket, world, bucket["name"])

        async def is_remade() -> bool:
            uuid = (await world.status())["couchbase"]["bucket"]["uuid"]
            return bool(uuid and uuid != bucket["uuid"])

        await until(is_remade)
        await world.until_condition("CredentialsReady", "True")
        await asyncio.to_thread(_remove_bucket, world, bucket["name"])
        await world.until_condition("BucketReady", "False", "RemovedByThirdParty")
        assert not await world.has_bucket(bucket["name"])
        # the cache is optional for serving
        assert (await world.condition("Ready"))["status"] == "True"
        await world.until_condition("CacheHealthy", "False")


def _remove_bucket(world: World, name: str) -> None:
    with urllib.request.urlopen(world.management_request(f"/pools/default/buckets/{name}", "DELETE"), timeout=30):
        pass
