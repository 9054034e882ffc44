"""A steady resource is silent, drift is undone, and a new operator leaves pods alone."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from couchbase_lm_operator import names
from tests.reconcile.world import until

if TYPE_CHECKING:
    from couchbase_lm_operator.runtime import Runtime
    from tests.reconcile.world import Manifest, World


async def _passes(runtime: Runtime, world: World, count: int) -> None:
    """Wait for that many further passes, woken by hand as a resync would."""
    from couchbase_lm_operator.metrics import REGISTRY
    from couchbase_lm_operator.work_queue import Key

    def done() -> float:
        return REGISTRY.get_sample_value("lmcb_passes_total", {"outcome": "done"}) or 0.0

    for _ in range(count):
        before = done()

        async def is_done(before: float = before) -> bool:
            return done() > before

        runtime.wake(Key(world.namespace, "demo"))
        await until(is_done, seconds=10)


async def test_a_steady_resource_is_never_written(world: World) -> None:
    async with world.operator() as runtime:
        await world.serve()
        await _passes(runtime, world, 2)
        versions, mutations = await world.versions(), world.couchbase_mutations()
        position = world.server.audit_position()
        await _passes(runtime, world, 5)
        await asyncio.sleep(1.5)  # the patrol's rounds (references, probes) run twice meanwhile
        assert world.server.writes_since(position, namespace=world.namespace) == []
        assert await world.versions() == versions
        assert world.couchbase_mutations() == mutations


async def _drifted(world: World, kind: str, spoil: Manifest) -> float:
    """Spoil a child and return the seconds until it is as before."""
    before = (await world.get(kind, "demo"))["spec"]
    await world.edit("demo", kind=kind, **spoil)
    started = time.monotonic()

    async def is_restored() -> bool:
        return bool((await world.get(kind, "demo"))["spec"] == before)

    await until(is_restored, seconds=10)
    return time.monotonic() - started


async def test_drift_of_children_is_undone_within_ten_seconds(world: World) -> None:
    async with world.operator():
        await world.serve()
        container = {"name": "vllm", "image": "elsewhere/other:1"}
        deployment = await world.get("Deployment", "demo")
        containers = [
            {**each, **container} if each["name"] == "vllm" else each
            for each in deployment["spec"]["template"]["spec"]["containers"]
        ]
        assert await _drifted(world, "Deployment", {"spec": {"replicas": 7}}) < 10
        spoilt = {"spec": {"template": {"spec": {"containers": containers}}}}
        assert await _drifted(world, "Deployment", spoilt) < 10
        assert await _drifted(world, "Service", {"spec": {"selector": {"app.kubernetes.io/name": "other"}}}) < 10


async def test_deleted_children_come_back(world: World) -> None:
    async with world.operator():
        await world.serve()
        (record,), _ = await world.cluster.objects("ControllerRevision", world.namespace)
        template = (await world.get("Deployment", "demo"))["spec"]["template"]
        for kind, name in (
            ("ControllerRevision", record["metadata"]["name"]),
            ("Service", "demo"),
            ("Deployment", "demo"),
            ("Secret", "demo-couchbase"),
        ):
            uid = (await world.get(kind, name))["metadata"]["uid"]
            await world.delete(kind, name)

            async def is_back(kind: str = kind, name: str = name, uid: str = uid) -> bool:
                found = await world.cluster.get(kind, world.namespace, name)
                return found is not None and found["metadata"]["uid"] != uid

            await until(is_back, seconds=10)
        assert (await world.get("Deployment", "demo"))["spec"]["template"] == template
        # a new password is in the Secret: the user was written again, so that the engines can log in
        await world.until_condition("CredentialsReady", "True")


async def test_lost_labels_and_owner_are_put_back(world: World) -> None:
    async with world.operator():
        await world.serve()
        await world.edit("demo", kind="Service", metadata={"labels": {names.LABEL_MANAGED_BY: None}})
        await world.edit("demo", kind="Deployment", metadata={"ownerReferences": None})

        async def is_ours_again() -> bool:
            service, deployment = await world.get("Service", "demo"), await world.get("Deployment", "demo")
            is_labelled = service["metadata"]["labels"].get(names.LABEL_MANAGED_BY) == names.FIELD_MANAGER
            return is_labelled and bool(deployment["metadata"].get("ownerReferences"))

        await until(is_ours_again, seconds=10)


async def test_fields_of_others_are_left_alone(world: World) -> None:
    async with world.operator() as runtime:
        await world.serve()
        await world.edit("demo", kind="Deployment", metadata={"annotations": {"example.com/note": "mine"}})
        await _passes(runtime, world, 2)
        deployment = await world.get("Deployment", "demo")
        assert deployment["metadata"]["annotations"]["example.com/note"] == "mine"


async def test_a_restart_writes_nothing(world: World) -> None:
    async with world.operator() as runtime:
        await world.serve()
        await _passes(runtime, world, 2)
    versions, mutations = await world.versions(), world.couchbase_mutations()
    async with world.operator() as runtime:
        await _passes(runtime, world, 3)
        await asyncio.sleep(1.0)  # the first round of the patrol
        assert await world.versions() == versions
        assert world.couchbase_mutations() == mutations


async def test_a_new_release_leaves_pods_alone_until_it_is_approved(world: World) -> None:
    async with world.operator():
        await world.serve()
    template = (await world.get("Deployment", "demo"))["spec"]["template"]
    async with world.operator(operator_image="localhost/lmcache-couchbase/operator:next", engine_image_cpu="cpu:next"):
        pending = await world.until_condition("RolloutPending", "True")
        assert (await world.get("Deployment", "demo"))["spec"]["template"] == template
        assert (await world.condition("Ready"))["status"] == "True"
        revision = (await world.status())["workload"]["pendingRevision"]
        assert revision in pending["message"]

        await world.edit(spec={"replicas": 3})

        async def is_scaled() -> bool:
            return bool((await world.get("Deployment", "demo"))["spec"]["replicas"] == 3)

        await until(is_scaled)
        assert (await world.get("Deployment", "demo"))["spec"]["template"] == template

        await world.edit(spec={"rollout": {"approve": revision}})

        async def is_rolled() -> bool:
            spec = (await world.get("Deployment", "demo"))["spec"]["template"]["spec"]
            return all(each["image"] == "cpu:next" for each in spec["containers"])

        await until(is_rolled)
        await world.until_condition("RolloutPending", "absent")
        assert (await world.status())["workload"]["revision"] == revision
        kept, _ = await world.cluster.objects("ControllerRevision", world.namespace)
        assert [each["data"]["revision"] for each in kept] == [revision]


async def test_a_changed_field_rolls_the_pods(world: World) -> None:
    async with world.operator():
        await world.serve()
        await world.edit(spec={"engine": {"env": [{"name": "EXAMPLE", "value": "$(HOME)"}]}})

        async def is_rolled() -> bool:
            spec = (await world.get("Deployment", "demo"))["spec"]["template"]["spec"]
            return {"name": "EXAMPLE", "value": "$(HOME)"} in spec["containers"][0]["env"]

        await until(is_rolled)
        await world.until_condition("Ready", "False", "WorkloadStarting")
