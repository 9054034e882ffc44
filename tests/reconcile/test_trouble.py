"""Bad input and bad times: one reason, a sentence that names the field, recovery without touching the resource."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from couchbase_lm_operator import names
from tests.reconcile.world import MODEL_CONFIG, until

if TYPE_CHECKING:
    from tests.reconcile.world import World


async def test_a_missing_admin_secret_is_waited_for_and_pods_start_meanwhile(world: World) -> None:
    async with world.operator():
        await world.create(couchbase__adminSecretRef={"name": "late"})
        found = await world.until_condition("CouchbaseReachable", "False", "SecretMissing")
        assert "spec.couchbase.adminSecretRef" in found["message"]
        await world.get("Deployment", "demo")
        await world.write_secret(
            "late", username=world.couchbase.admin_username, password=world.couchbase.admin_password
        )
        await world.until_condition("CredentialsReady", "True")


async def test_a_wrong_admin_password_is_told_and_its_correction_picked_up(world: World) -> None:
    await world.write_secret("cb-admin", username="Administrator", password="not-the-password")
    async with world.operator():
        await world.create()
        found = await world.until_condition("Ready", "False", "AdminCredentialsRefused")
        assert "adminSecretRef" in found["message"]
        assert "not-the-password" not in json.dumps(await world.status())
        assert (await world.condition("Stalled"))["status"] == "True"
        await world.get("Deployment", "demo")
        await world.set_admin_secret()
        await world.until_condition("CredentialsReady", "True")
        assert (await world.condition("Stalled"))["status"] == "absent"


async def test_an_admin_password_that_goes_wrong_later_leaves_the_resource_ready(world: World) -> None:
    async with world.operator():
        await world.serve()
        await world.write_secret("cb-admin", username="Administrator", password="rotated")
        await world.until_condition("CouchbaseReachable", "False", "AdminCredentialsRefused")
        assert (await world.condition("Ready"))["status"] == "True"
        assert (await world.condition("Stalled"))["status"] == "absent"
        await world.edit(spec={"replicas": 5})

        async def is_scaled() -> bool:
            return bool((await world.get("Deployment", "demo"))["spec"]["replicas"] == 5)

        await until(is_scaled)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "ModelConfigMissing"),
        ({"other.json": "{}"}, "ModelConfigMissing"),
        ({"config.json": "not json"}, "ModelConfigInvalid"),
        ({"config.json": "[1]"}, "ModelConfigInvalid"),
        ({"config.json": json.dumps({**MODEL_CONFIG, "model_type": "unheard-of"})}, "ModelNotSupported"),
        ({"config.json": json.dumps({**MODEL_CONFIG, "num_hidden_layers": 10**9})}, "ModelConfigInvalid"),
        ({"config.json": json.dumps({"model_type": "llama"})}, "ModelConfigInvalid"),
        ({"config.json": json.dumps({**MODEL_CONFIG, "num_attention_heads": None})}, "ModelConfigInvalid"),
    ],
    ids=[
        *("no ConfigMap", "no key", "not JSON", "not an object", "unknown type", "absurd"),
        *("no needed field", "one needed field is null"),
    ],
)
async def test_a_model_config_that_is_no_use_is_told_and_its_correction_picked_up(
    world: World, data: dict[str, str] | None, reason: str
) -> None:
    if data is not None:
        await world.write_config_map("later", data)
    async with world.operator():
        await world.create(model__config={"configMapRef": {"name": "later"}})
        found = await world.until_condition("ModelResolved", "False", reason)
        assert (await world.condition("Ready"))["reason"] == reason
        assert "later" in found["message"] or "model" in found["message"]
        assert await world.cluster.get("Deployment", world.namespace, "demo") is None
        await world.write_config_map("later", {"config.json": json.dumps(MODEL_CONFIG)})
        await world.until_condition("CredentialsReady", "True")


@pytest.mark.parametrize(
    ("changes", "reason", "word"),
    [
        ({"cache__chunkSize": 100}, "ChunkSizeInvalid", "chunkSize"),
        ({"engine__extraArgs": ["--kv_transfer_config={}"]}, "FlagNotAllowed", "extraArgs"),
        ({"engine__extraArgs": ["--enable-lora"]}, "LoRANotSupported", "lora"),
        (
            {"podTemplate__volumes": [{"name": "host", "hostPath": {"path": "/etc"}}]},
            "HostPathNotAllowed",
            "podTemplate",
        ),
    ],
)
async def test_what_cannot_work_is_refused_and_nothing_is_made(
    world: World, changes: dict[str, Any], reason: str, word: str
) -> None:
    async with world.operator():
        await world.create(**changes)
        found = await world.until_condition("Ready", "False", reason)
        assert word in found["message"]
        assert (await world.condition("Stalled"))["reason"] == reason
        assert await world.cluster.get("Deployment", world.namespace, "demo") is None


async def test_a_bad_edit_leaves_running_pods_alone_and_is_not_ready(world: World) -> None:
    async with world.operator():
        await world.serve()
        before = (await world.get("Deployment", "demo"))["metadata"]["generation"]
        await world.edit(spec={"engine": {"extraArgs": ["--enable-lora"]}})
        await world.until_condition("Ready", "False", "LoRANotSupported")
        assert (await world.get("Deployment", "demo"))["metadata"]["generation"] == before
        await world.edit(spec={"engine": {"extraArgs": None}})
        await world.until_condition("Ready", "True", "Serving")
        assert (await world.get("Deployment", "demo"))["metadata"]["generation"] == before


async def test_a_pod_part_that_the_api_server_refuses_names_the_field(world: World) -> None:
    async with world.operator():
        await world.serve()
        before = (await world.get("Deployment", "demo"))["metadata"]["generation"]
        await world.edit(spec={"podTemplate": {"tolerations": [{"key": "gpu", "operator": "Sometimes"}]}})
        found = await world.until_condition("Ready", "False", "PodTemplateInvalid")
        assert "tolerations[0].operator" in found["message"]
        await world.edit(spec={"podTemplate": {"tolerations": [{"kex": "gpu"}]}})
        found = await world.until_condition("Ready", "False", "PodTemplateInvalid")
        assert "kex" in found["message"]
        assert (await world.get("Deployment", "demo"))["metadata"]["generation"] == before
        await world.edit(spec={"podTemplate": {"tolerations": [{"key": "gpu", "operator": "Exists"}]}})
        await world.until_condition("Ready", "False", "WorkloadStarting")


async def test_an_object_of_somebody_else_is_not_touched(world: World) -> None:
    ports = [{"port": 1, "targetPort": 1, "protocol": "TCP"}]
    await world.put({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "demo"}, "spec": {"ports": ports}})
    version = (await world.get("Service", "demo"))["metadata"]["resourceVersion"]
    async with world.operator():
        await world.create()
        found = await world.until_condition("Ready", "False", "ChildNotOurs")
        assert "Service demo" in found["message"]
        assert (await world.get("Service", "demo"))["metadata"]["resourceVersion"] == version
        assert "url" not in (await world.status())["workload"]
        await world.delete("Service", "demo")
        await world.until_condition("Ready", "False", "WorkloadStarting", seconds=40)


async def test_nothing_is_told_of_objects_of_others(world: World) -> None:
    async with world.operator():
        await world.serve()
        assert (await world.status())["workload"]["url"]
    deployment, service = await world.get("Deployment", "demo"), await world.get("Service", "demo")
    for kind, found in (("Deployment", deployment), ("Service", service)):
        await world.delete(kind, "demo")
        spec = {name: value for name, value in found["spec"].items() if not name.startswith(("clusterIP", "ipFam"))}
        await world.put({"apiVersion": found["apiVersion"], "kind": kind, "metadata": {"name": "demo"}, "spec": spec})
    await world.make_available()
    async with world.operator():
        await world.until_condition("Ready", "False", "ChildNotOurs")
        assert (await world.condition("WorkloadAvailable"))["reason"] == "WorkloadNotRendered"
        assert "url" not in (await world.status())["workload"]
        await world.edit(spec={"suspend": True})
        await world.until_condition("Ready", "Unknown", "Suspended")
        assert (await world.condition("WorkloadAvailable"))["reason"] == "WorkloadNotRendered"


async def test_two_resources_never_share_a_bucket_or_a_user(world: World) -> None:
    async with world.operator():
        await world.serve("first", couchbase__bucket={"name": "wanted"}, couchbase__user={"name": "somebody"})
        await world.create("second", couchbase__bucket={"name": "wanted"})
        found = await world.until_condition("Ready", "False", "ClaimedByOther", name="second")
        assert f"{world.namespace}/first" in found["message"]
        await world.create("third", couchbase__user={"name": "somebody"})
        found = await world.until_condition("Ready", "False", "ClaimedByOther", name="third")
        assert f"{world.namespace}/first" in found["message"]
        assert (await world.condition("Ready", "first"))["status"] == "True"


async def test_who_lost_a_bucket_or_a_user_takes_it_over_once_the_winner_is_gone(world: World) -> None:
    async with world.operator():
        bucket = {"name": "wanted", "reclaimPolicy": "Delete"}
        await world.serve("first", couchbase__bucket=bucket, couchbase__user={"name": "somebody"})
        await world.create("second", couchbase__bucket={"name": "wanted"})
        await world.create("third", couchbase__user={"name": "somebody"})
        for loser in ("second", "third"):
            await world.until_condition("Ready", "False", "ClaimedByOther", name=loser)
            assert (await world.condition("CredentialsReady", loser))["status"] != "True"

        await world.delete(names.KIND, "first")

        for loser in ("second", "third"):
            await world.until_condition("CredentialsReady", "True", name=loser, seconds=60)
            assert (await world.condition("Stalled", loser))["status"] == "absent"
        assert (await world.status("second"))["couchbase"]["bucket"]["name"] == "wanted"
        assert (await world.status("third"))["couchbase"]["user"] == "somebody"
        assert await world.has_bucket("wanted")
        assert await world.has_user("somebody")


async def test_couchbase_down_shows_in_the_cache_and_not_in_ready(world: World) -> None:
    async with world.operator():
        await world.serve()
        before = (await world.get("Deployment", "demo"))["metadata"]["generation"]
        world.couchbase.faults.kill_node(0)
        await world.until_condition("CacheHealthy", "False", "CacheUnreachable")
        assert (await world.condition("Ready"))["status"] == "True"
        world.couchbase.faults.revive_node(0)
        await world.until_condition("CacheHealthy", "True", seconds=40)
        assert (await world.get("Deployment", "demo"))["metadata"]["generation"] == before


async def test_couchbase_down_from_the_start_lets_pods_start(world: World) -> None:
    world.couchbase.faults.kill_node(0)
    async with world.operator():
        await world.create()
        await world.until_condition("CouchbaseReachable", "False", "CouchbaseUnreachable")
        await world.get("Deployment", "demo")
        await world.get("Secret", "demo-couchbase")
        await world.make_available()
        await world.until_condition("WorkloadAvailable", "True")
        assert (await world.condition("Ready"))["status"] == "False"
        world.couchbase.faults.revive_node(0)
        await world.until_condition("Ready", "True", seconds=40)


async def test_a_slow_bucket_is_waited_for(world: World) -> None:
    world.couchbase.faults.bucket_warmup_seconds = 3.0
    world.couchbase.faults.user_propagation_delay_seconds = 1.0
    async with world.operator():
        await world.create()
        found = await world.until_condition("BucketReady", "False")
        assert found["reason"] in {"BucketCreating", "BucketWarmingUp"}
        assert (await world.condition("Stalled"))["status"] == "absent"
        await world.until_condition("CredentialsReady", "True")


async def test_a_deployment_that_cannot_create_pods_is_stalled_and_pending_pods_are_not(world: World) -> None:
    async with world.operator():
        await world.create()
        await until(lambda: world.cluster.get("Deployment", world.namespace, "demo"))
        message = 'pods "demo-5d4f8-x7k2p" is forbidden: violates PodSecurity "restricted:latest"'
        failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}
        await world.set_deployment_status(conditions=[failure])
        found = await world.until_condition("Stalled", "True", "WorkloadBlocked")
        assert "violates PodSecurity" in found["message"]
        assert "x7k2p" not in found["message"]
        await world.set_deployment_status(conditions=[])
        await world.until_condition("Stalled", "absent")


async def test_suspended_means_no_change_and_an_observed_generation(world: World) -> None:
    async with world.operator():
        await world.serve()
        await world.edit(spec={"suspend": True})
        await world.until_condition("Suspended", "True")
        assert (await world.condition("Ready"))["status"] == "Unknown"
        before = (await world.get("Deployment", "demo"))["metadata"]["generation"]
        await world.edit(spec={"replicas": 6})
        await world.until_condition("Suspended", "True")
        assert (await world.get("Deployment", "demo"))["metadata"]["generation"] == before
        await world.set_deployment_status(replicas=2, updatedReplicas=2, readyReplicas=1, availableReplicas=1)
        await world.until_condition("WorkloadAvailable", "False")
        await world.edit(spec={"suspend": False})
        await world.until_condition("Suspended", "absent")
        assert (await world.get("Deployment", "demo"))["spec"]["replicas"] == 6


async def test_a_service_that_the_api_server_refuses_names_its_field_and_changes_nothing(world: World) -> None:
    async with world.operator():
        await world.create(service__annotations={"no key!": "x"})
        found = await world.until_condition("Ready", "False", "ServiceInvalid")
        assert "spec.service" in found["message"]
        assert (await world.condition("Stalled"))["status"] == "True"
        assert await world.cluster.get("Deployment", world.namespace, "demo") is None
        await world.edit(spec={"service": {"annotations": {"no key!": None}}})
        await world.until_condition("CredentialsReady", "True")
        await until(lambda: world.cluster.get("Deployment", world.namespace, "demo"))
