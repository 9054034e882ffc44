"""While a spec cannot be followed, its pods stay as they are, and all that does not shape them goes on."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from couchbase_lm_operator import names
from tests.model_hub import Hub, running_hub
from tests.reconcile.world import MODEL_CONFIG, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.reconcile.world import Manifest, World


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running_hub() as running:
        running.body = json.dumps({**MODEL_CONFIG, "rope_theta": 1000000.0}).encode()
        yield running


async def _template(world: World) -> Manifest:
    return dict((await world.get("Deployment", "demo"))["spec"]["template"])


async def _until_scaled(world: World, replicas: int) -> None:
    async def is_scaled() -> bool:
        return bool((await world.get("Deployment", "demo"))["spec"]["replicas"] == replicas)

    await until(is_scaled, seconds=10)


async def _assert_stalled(world: World, reason: str) -> None:
    """Assert that the status says of this very generation that a person has to act."""
    found = await world.until_condition("Ready", "False", reason)
    stalled = await world.until_condition("Stalled", "True", reason)
    assert stalled["message"] == found["message"]
    assert stalled["observedGeneration"] == (await world.get(names.KIND, "demo"))["metadata"]["generation"]


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        ({"engine": {"extraArgs": ["--enable-lora"]}}, "LoRANotSupported"),
        ({"cache": {"chunkSize": 100}}, "ChunkSizeInvalid"),
        ({"podTemplate": {"tolerations": [{"key": "gpu", "operator": "Sometimes"}]}}, "PodTemplateInvalid"),
        ({"engine": {"startupTimeout": "8d"}}, "InvalidSpec"),
    ],
    ids=["a flag", "a size", "refused by the API server", "a time"],
)
async def test_what_does_not_shape_pods_takes_effect_beside_a_refused_edit(
    world: World, spoil: dict[str, Any], reason: str
) -> None:
    async with world.operator():
        await world.serve()
        template, before = await _template(world), (await world.get("Deployment", "demo"))["spec"]
        await world.edit(spec=spoil)
        await _assert_stalled(world, reason)
        await world.edit(spec={"replicas": 5, "rollout": {"maxSurge": 2}, "service": {"port": 8080}})
        await _until_scaled(world, 5)
        await world.make_available()

        async def is_told() -> bool:
            return bool((await world.status())["workload"].get("readyReplicas") == 5)

        await until(is_told)
        await _assert_stalled(world, reason)
        now = (await world.get("Deployment", "demo"))["spec"]
        assert now["template"] == template
        assert now["strategy"]["rollingUpdate"]["maxSurge"] == 2
        assert now["progressDeadlineSeconds"] == before["progressDeadlineSeconds"]
        assert (await world.get("Service", "demo"))["spec"]["ports"][0]["port"] == 8080
        assert ":8080/" in (await world.status())["workload"]["url"]
        assert (await world.condition("WorkloadAvailable"))["status"] == "True"


async def test_a_refused_edit_of_the_rollout_holds_back_only_the_rollout(world: World) -> None:
    async with world.operator():
        await world.serve()
        before = (await world.get("Deployment", "demo"))["spec"]
        await world.edit(spec={"rollout": {"maxSurge": 0, "maxUnavailable": 0}, "replicas": 4})
        await _assert_stalled(world, "InvalidSpec")
        await _until_scaled(world, 4)
        assert (await world.get("Deployment", "demo"))["spec"] == {**before, "replicas": 4}


async def test_a_refused_service_holds_back_neither_scale_nor_drift(world: World) -> None:
    async with world.operator():
        await world.serve()
        template, service = await _template(world), (await world.get("Service", "demo"))["spec"]
        await world.edit(spec={"service": {"annotations": {"no key!": "x"}}, "replicas": 3})
        await _assert_stalled(world, "ServiceInvalid")
        await _until_scaled(world, 3)
        assert (await world.get("Service", "demo"))["spec"] == service
        await world.edit("demo", kind="Deployment", spec={"replicas": 9})
        await _until_scaled(world, 3)
        assert await _template(world) == template


async def test_deleted_and_spoilt_children_come_back_beside_a_refused_edit(world: World) -> None:
    async with world.operator():
        await world.serve()
        template = await _template(world)
        (record,), _ = await world.cluster.objects("ControllerRevision", world.namespace)
        await world.edit(spec={"engine": {"extraArgs": ["--enable-lora"]}})
        await _assert_stalled(world, "LoRANotSupported")
        for kind, name in (
            ("ControllerRevision", record["metadata"]["name"]),
            ("Service", "demo"),
            ("Deployment", "demo"),
        ):
            await world.delete(kind, name)

            async def is_back(kind: str = kind, name: str = name) -> bool:
                return await world.cluster.get(kind, world.namespace, name) is not None

            await until(is_back, seconds=10)
            assert await _template(world) == template
        containers = [{**each, "image": "elsewhere/other:1"} for each in template["spec"]["containers"]]
        await world.edit("demo", kind="Deployment", spec={"template": {"spec": {"containers": containers}}})

        async def is_restored() -> bool:
            return await _template(world) == template

        await until(is_restored, seconds=10)
        # the edit is taken back: nothing is left to do, and nothing rolls
        await world.edit(spec={"engine": {"extraArgs": None}})
        await world.make_available()
        await world.until_condition("Ready", "True", "Serving")
        assert await _template(world) == template
        assert (await world.condition("RolloutPending"))["status"] == "absent"


async def test_a_hub_that_refuses_holds_back_no_scale_also_after_an_upgrade(world: World, hub: Hub) -> None:
    async with world.operator():
        await world.serve(model={"id": "org/model", "config": {"hub": {"endpoint": hub.url}}})
    template = await _template(world)
    hub.status, hub.error_code = 403, "GatedRepo"
    async with world.operator(operator_image="localhost/lmcache-couchbase/operator:next", engine_image_cpu="cpu:next"):
        await world.until_condition("Ready", "False", "ModelConfigUnreadable")
        await world.edit(spec={"replicas": 6})
        await _until_scaled(world, 6)
        assert await _template(world) == template
        found = await world.until_condition("Ready", "False", "ModelConfigUnreadable")
        assert "spec.model.tokenSecretRef" in found["message"]


async def test_a_steady_refusal_writes_nothing(world: World) -> None:
    async with world.operator():
        await world.serve()
        await world.edit(spec={"engine": {"extraArgs": ["--enable-lora"]}, "replicas": 3})
        await _until_scaled(world, 3)
        await world.make_available()
        await world.until_condition("WorkloadAvailable", "True")
        await _assert_stalled(world, "LoRANotSupported")
    versions, mutations = await world.versions(), world.couchbase_mutations()
    async with world.operator():
        await world.until_condition("CacheHealthy", "True")
        await world.edit("demo", metadata={"annotations": {"example.com/note": "look again"}})
        await _assert_stalled(world, "LoRANotSupported")
        versions[names.KIND, "demo"] = (await world.versions())[names.KIND, "demo"]
        assert await world.versions() == versions
        assert world.couchbase_mutations() == mutations


async def test_bucket_and_user_are_repaired_beside_a_refused_edit(world: World) -> None:
    async with world.operator():
        await world.serve()
        couchbase = (await world.status())["couchbase"]
        bucket, user = couchbase["bucket"]["name"], couchbase["user"]
        before = _quota(world, bucket)
        await world.edit(spec={"engine": {"extraArgs": ["--enable-lora"]}})
        await _assert_stalled(world, "LoRANotSupported")

        await _remove(world, f"/settings/rbac/users/local/{user}")
        await until(lambda: world.has_user(user))
        await _remove(world, f"/pools/default/buckets/{bucket}")
        await until(lambda: world.has_bucket(bucket))
        await world.until_condition("CredentialsReady", "True")

        async def is_recorded() -> bool:
            return bool((await world.status())["couchbase"]["bucket"]["uuid"] != couchbase["bucket"]["uuid"])

        await until(is_recorded)
        assert _quota(world, bucket) == before
        await world.delete("Secret", "demo-couchbase")
        await until(lambda: world.cluster.get("Secret", world.namespace, "demo-couchbase"))
        await world.until_condition("CacheHealthy", "True")
        await _assert_stalled(world, "LoRANotSupported")


async def test_without_the_planned_size_all_but_the_bucket_is_repaired(world: World) -> None:
    async with world.operator():
        await world.serve()
        couchbase = (await world.status())["couchbase"]
        bucket, user = couchbase["bucket"]["name"], couchbase["user"]
        await world.edit(spec={"engine": {"extraArgs": ["--enable-lora"]}})
        await _assert_stalled(world, "LoRANotSupported")
        # the record is made again from status, which does not tell what the working set was
        (record,), _ = await world.cluster.objects("ControllerRevision", world.namespace)
        await world.delete("ControllerRevision", record["metadata"]["name"])

        async def is_back() -> bool:
            records, _ = await world.cluster.objects("ControllerRevision", world.namespace)
            return ["workingSetBytesPerContext" in each["data"]["facts"] for each in records] == [False]

        await until(is_back, seconds=10)
        await _remove(world, f"/settings/rbac/users/local/{user}")
        await until(lambda: world.has_user(user))
        await _remove(world, f"/pools/default/buckets/{bucket}")
        await world.until_condition("BucketReady", "False", "BucketSizeUnknown")
        await _assert_stalled(world, "LoRANotSupported")
        assert not await world.has_bucket(bucket)
        await world.edit(spec={"engine": {"extraArgs": None}})
        await until(lambda: world.has_bucket(bucket))


async def test_a_refused_edit_of_the_couchbase_part_too_changes_nothing_at_couchbase(world: World) -> None:
    async with world.operator():
        await world.serve(couchbase__bucket={"memoryQuota": "512Mi"})
        mutations = world.couchbase_mutations()
        changed = {"bucket": {"memoryQuota": "1Gi"}}
        await world.edit(spec={"engine": {"extraArgs": ["--enable-lora"]}, "couchbase": changed, "replicas": 3})
        await _assert_stalled(world, "LoRANotSupported")
        await _until_scaled(world, 3)
        assert world.couchbase_mutations() == mutations
        await world.edit(spec={"engine": {"extraArgs": None}})
        bucket = (await world.status())["couchbase"]["bucket"]["name"]

        async def has_grown() -> bool:
            return _quota(world, bucket) == 1024 * 1024 * 1024

        await until(has_grown)


async def _remove(world: World, path: str) -> None:
    request = world.management_request(path, "DELETE")
    await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=30).close())


def _quota(world: World, bucket: str) -> int:
    """Return the bytes that the bucket has on each data node."""
    with urllib.request.urlopen(world.management_request(f"/pools/default/buckets/{bucket}"), timeout=10) as answer:
        return int(json.load(answer)["quota"]["rawRAM"])
