"""What pods tell of their chunks becomes a condition and an observation, once for a pod template."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from couchbase_lm_operator import names
from couchbase_lm_operator.core.sizing.payoff import shown_seconds
from couchbase_lm_operator.io.kube_api import KINDS, MERGE_PATCH
from couchbase_lm_operator.metrics import REGISTRY
from couchbase_lm_operator.work_queue import Key
from tests.pod_metrics import LONE_RANK, PodMetrics, running_pod_metrics
from tests.reconcile.world import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from couchbase_lm_operator.runtime import Runtime
    from tests.reconcile.world import World

# 2 x 30 layers x 3 heads x 64 x 2 bytes for each token of the chunk
TOKEN_BYTES = 23040


@pytest.fixture
def pod() -> Iterator[PodMetrics]:
    with running_pod_metrics() as running:
        running.tell()
        yield running


async def _put_pod(world: World, pod: PodMetrics, name: str = "demo-1") -> None:
    """Create a ready pod as a ReplicaSet and a kubelet would, whose metrics port is the one of the test."""
    port = {"name": "metrics", "containerPort": pod.port}
    sidecar = {"name": "lmcache", "image": "x", "restartPolicy": "Always", "ports": [port]}
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": names.selector_labels("demo")},
        "spec": {"initContainers": [sidecar], "containers": [{"name": "vllm", "image": "x"}]},
    }
    await world.put(manifest)
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}], "phase": "Running", "conditions": conditions}
    path = KINDS["Pod"].path(world.namespace, name, "status")
    await world.cluster.api.request("PATCH", path, body={"status": status}, content_type=MERGE_PATCH)


async def _serve(world: World, *pods: PodMetrics, **changes: Any) -> int:
    """Bring a resource and its pods to Ready; returns the predicted bytes of a chunk."""
    for position, pod in enumerate(pods):
        await _put_pod(world, pod, f"demo-{position}")
    await world.serve(**changes)
    return TOKEN_BYTES * int((await world.status())["model"]["chunkSize"])


async def _pass(runtime: Runtime, world: World) -> None:
    before = REGISTRY.get_sample_value("lmcb_passes_total", {"outcome": "done"}) or 0.0
    runtime.wake(Key(world.namespace, "demo"))

    async def is_done() -> bool:
        return (REGISTRY.get_sample_value("lmcb_passes_total", {"outcome": "done"}) or 0.0) > before

    await until(is_done, seconds=10)


async def test_the_predicted_size_verifies_and_reading_ends_with_the_speed(world: World, pod: PodMetrics) -> None:
    async with world.operator() as runtime:
        size = await _serve(world, pod)
        await world.until_condition("SizingVerified", "Unknown", "NothingStored")
        pod.tell((0, LONE_RANK, size))
        # nobody wakes the operator: it comes back by itself
        await world.until_condition("SizingVerified", "True", "SizingVerified")
        revision = (await world.status())["workload"]["revision"]
        recorded = {"revision": revision, "objectBytes": [size], "ranks": 1}
        assert (await world.status())["observation"] == recorded

        versions = await world.versions()
        pod.tell((0, LONE_RANK, size), loads=19, loaded_bytes=20 * size, seconds=1.0)
        await _pass(runtime, world)
        assert await world.versions() == versions
        predicted = (await world.status())["capacity"]
        pod.tell((0, LONE_RANK, size), loads=20, loaded_bytes=1234 * 10**6, seconds=1.0)
        await _pass(runtime, world)
        after = await world.status()
        assert after["observation"] == {**recorded, "loadBytesPerSecond": 1_200_000_000}
        observed_seconds = after["capacity"]["loadedBytesPerContext"] / 1.2e9
        assert after["capacity"]["loadTime"] == f"{shown_seconds(observed_seconds):g}s"
        assert after["capacity"]["loadTime"] != predicted["loadTime"]
        assert after["capacity"]["quota"] == predicted["quota"]

        versions, asked = await world.versions(), len(pod.paths)
        pod.tell((0, LONE_RANK, size + 1), loads=90, loaded_bytes=10**12, seconds=1.0)
        for _ in range(3):
            await _pass(runtime, world)
        assert await world.versions() == versions
        assert len(pod.paths) == asked


async def test_a_wrong_size_is_told_and_changes_nothing(world: World, pod: PodMetrics) -> None:
    async with world.operator() as runtime:
        size = await _serve(world, pod)
        deployment, mutations = await world.get("Deployment", "demo"), world.couchbase_mutations()
        pod.tell((0, LONE_RANK, 2 * size))
        condition = await world.until_condition("SizingVerified", "False", "SizingDiffers")
        assert f" {2 * size} bytes" in condition["message"]
        assert f" {size} bytes" in condition["message"]
        await _pass(runtime, world)
        assert (await world.condition("Ready"))["status"] == "True"
        assert (await world.status())["model"]["chunkSize"] * TOKEN_BYTES == size
        assert (await world.get("Deployment", "demo"))["spec"] == deployment["spec"]
        assert world.couchbase_mutations() == mutations

        async def is_warned() -> bool:
            told, _ = await world.cluster.objects("Event", world.namespace)
            return any(each["type"] == "Warning" and each["reason"] == "SizingDiffers" for each in told)

        await until(is_warned)


async def test_pods_that_cannot_be_reached_are_told_and_one_that_answers_is_enough(
    world: World, pod: PodMetrics
) -> None:
    with running_pod_metrics() as mute:
        mute.status = 404
        async with world.operator():
            await _put_pod(world, mute, "demo-mute")
            await world.serve()
            condition = await world.until_condition("SizingVerified", "Unknown", "MetricsUnreachable")
            assert "NetworkPolicy" in condition["message"]
            pod.tell((0, LONE_RANK, TOKEN_BYTES * int((await world.status())["model"]["chunkSize"])))
            await _put_pod(world, pod, "demo-well")
            await world.until_condition("SizingVerified", "True")


async def test_another_template_is_verified_anew_and_its_predecessors_pods_do_not_count(
    world: World, pod: PodMetrics
) -> None:
    async with world.operator() as runtime:
        size = await _serve(world, pod)
        pod.tell((0, LONE_RANK, size))
        await world.until_condition("SizingVerified", "True")
        first = (await world.status())["observation"]
        await world.edit(spec={"cache": {"chunkSize": 128}})
        await world.until_condition("SizingVerified", "Unknown", "NothingStored")
        await _pass(runtime, world)  # the Deployment's new generation has not been taken up: its pods are the old ones
        assert (await world.condition("SizingVerified"))["status"] == "Unknown"
        assert "observation" not in await world.status()

        pod.tell((0, LONE_RANK, 128 * TOKEN_BYTES))
        await world.make_available()
        await world.until_condition("SizingVerified", "True")
        second = (await world.status())["observation"]
        assert second["objectBytes"] == [128 * TOKEN_BYTES]
        assert second["revision"] != first["revision"]


async def test_a_new_operator_and_a_suspended_resource_keep_what_is_known(world: World, pod: PodMetrics) -> None:
    async with world.operator():
        pod.tell((0, LONE_RANK, 5), loads=20, loaded_bytes=100, seconds=1.0)
        await _serve(world, pod)
        await world.until_condition("SizingVerified", "False")
    observation, asked = (await world.status())["observation"], len(pod.paths)
    async with world.operator() as runtime:
        await _pass(runtime, world)
        assert (await world.condition("SizingVerified"))["status"] == "False"
        await world.edit(spec={"suspend": True})
        await world.until_condition("Suspended", "True")
        assert (await world.condition("SizingVerified"))["reason"] == "SizingDiffers"
        assert (await world.status())["observation"] == observation
    assert len(pod.paths) == asked


async def test_pods_without_a_port_of_their_own_are_not_asked(world: World, pod: PodMetrics) -> None:
    pod.tell((0, LONE_RANK, 5))
    async with world.operator() as runtime:
        await world.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "demo-old", "labels": names.selector_labels("demo")},
                "spec": {
                    "initContainers": [{"name": "lmcache", "image": "x", "restartPolicy": "Always"}],
                    "containers": [{"name": "vllm", "image": "x"}],
                },
            }
        )
        await world.serve()
        await _pass(runtime, world)
        assert (await world.condition("SizingVerified"))["reason"] == "NothingStored"
    assert pod.paths == []
