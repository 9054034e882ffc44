"""From one applied resource to Deployment, Service, Secret, bucket, user and conditions; then silence."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.reconcile.world import World


async def test_a_resource_becomes_a_workload_and_a_bucket(world: World) -> None:
    async with world.operator():
        await world.create()
        await world.until_condition("CredentialsReady", "True")
        deployment = await world.get("Deployment", "demo")
        assert deployment["spec"]["replicas"] == 2
        await world.get("Service", "demo")
        await world.get("Secret", "demo-couchbase")
        await world.until_condition("Ready", "False", "WorkloadStarting")
        await world.make_available()
        await world.until_condition("Ready", "True", "Serving")
        await world.until_condition("CacheHealthy", "True")
