"""One watched namespace that is deleted, or whose Role is, stops nothing in the others."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import time
from contextlib import asynccontextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from couchbase_lm_operator import names, removal
from couchbase_lm_operator.handlers import kopf_settings
from couchbase_lm_operator.io.cluster import Cluster
from couchbase_lm_operator.io.kube_api import KINDS, KubeApi
from couchbase_lm_operator.io.watches import watch_children
from couchbase_lm_operator.memory import Memories
from couchbase_lm_operator.metrics import PASSES
from couchbase_lm_operator.patrol import Patrol
from couchbase_lm_operator.work_queue import Key, WorkQueue
from tests.apiserver import OPERATOR_TOKEN, OPERATOR_USER
from tests.reconcile.test_operation import grant
from tests.reconcile.test_process import start_operator
from tests.reconcile.world import World, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


_KOPF_REPEATS = "failed; will retry: .*APIForbiddenError"


@pytest.fixture
async def other(world: World) -> AsyncIterator[World]:
    """A second namespace, with an operator's rights in both."""
    other = World(world.server, world.cluster, world.couchbase, f"{world.namespace}-other")
    await other.build()
    await grant(world)
    await grant(other)
    yield other
    await other.clear()


@pytest.fixture
def operators_kubeconfig(world: World, tmp_path: Path) -> Path:
    return world.server.kubeconfig_for(OPERATOR_TOKEN, tmp_path / "operator")


async def _lose(world: World) -> None:
    """Take away what goes with a namespace: the operator's rights there."""
    for plural in ("rolebindings", "roles"):
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{world.namespace}/{plural}/{OPERATOR_USER}"
        await world.cluster.api.request("DELETE", path)

    async def is_refused() -> bool:
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": OPERATOR_USER,
                "resourceAttributes": {"namespace": world.namespace, "verb": "get", "resource": "secrets"},
            },
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return not (await world.cluster.api.request("POST", path, body=review))["status"]["allowed"]

    await until(is_refused)


@asynccontextmanager
async def _limited(kubeconfig: Path) -> AsyncIterator[Cluster]:
    async with KubeApi(kubeconfig) as api:
        yield Cluster(api)


async def _has_replicas(world: World, wanted: int) -> None:
    async def is_scaled() -> bool:
        return bool((await world.get("Deployment", "demo"))["spec"]["replicas"] == wanted)

    await until(is_scaled, seconds=10)


async def test_a_namespace_lost_while_running_stops_nothing_in_the_others(
    world: World, other: World, operators_kubeconfig: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watched = (other.namespace, world.namespace)
    async with world.operator(kubeconfig=operators_kubeconfig, namespaces=watched, sweep_seconds=0.5):
        await other.serve()
        await world.serve()
        await _lose(other)
        await world.edit(spec={"replicas": 3})
        await _has_replicas(world, 3)
        await world.delete("Service", "demo")
        await until(lambda: world.cluster.get("Service", world.namespace, "demo"), seconds=10)
        await world.write_secret("cb-admin", username="Administrator", password="wrong")
        await world.until_condition("CouchbaseReachable", "False")
        await until(lambda: _told(caplog, other.namespace), seconds=10)
        await asyncio.sleep(2.0)  # several rounds more
        assert len(await _told(caplog, other.namespace)) == 1


async def test_a_namespace_that_is_not_there_at_start_is_served_once_it_is(
    world: World, other: World, operators_kubeconfig: Path
) -> None:
    await _lose(other)
    world.log.expect(_KOPF_REPEATS)
    watched = (other.namespace, world.namespace)
    async with world.operator(kubeconfig=operators_kubeconfig, namespaces=watched, sweep_seconds=0.5):
        await other.create()
        await world.serve()
        assert (await other.status())["observedGeneration"] == -1
        await grant(other)
        await other.until_condition("CredentialsReady", "True")


async def test_a_resource_that_goes_with_its_namespace_is_forgotten(
    world: World, other: World, operators_kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "PATIENCE_WITHOUT_CREDENTIALS_SECONDS", 1.0)
    watched = (other.namespace, world.namespace)
    async with world.operator(kubeconfig=operators_kubeconfig, namespaces=watched) as runtime:
        await other.serve()
        await _lose(other)
        await other.delete(names.KIND, "demo")

        async def is_forgotten() -> bool:
            return Key(other.namespace, "demo") not in dict(runtime.memories.items())

        await until(is_forgotten)


async def test_a_namespace_that_is_being_deleted_is_not_held(
    world: World, other: World, operators_kubeconfig: Path
) -> None:
    """The Role may be gone in a moment, so the resource goes first and what it left at Couchbase after it."""
    watched = (other.namespace, world.namespace)
    async with world.operator(kubeconfig=operators_kubeconfig, namespaces=watched):
        await other.serve(couchbase__bucket={"reclaimPolicy": "Delete"})
        made = (await other.status())["couchbase"]
        world.couchbase.faults.kill_node(0)
        await _delete_namespace(other)
        await until(lambda: _is_gone(other), seconds=10)
        world.couchbase.faults.revive_node(0)

        async def is_clean() -> bool:
            return not (await world.has_user(made["user"]) or await world.has_bucket(made["bucket"]["name"]))

        await until(is_clean)


async def test_what_holds_a_namespace_whose_role_went_first_is_told_with_the_remedy(
    world: World, other: World, operators_kubeconfig: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watched = (other.namespace, world.namespace)
    async with world.operator(kubeconfig=operators_kubeconfig, namespaces=watched):
        await other.serve(couchbase__bucket={"reclaimPolicy": "Delete"})
        await other.edit(metadata={"finalizers": ["example.com/held", names.FINALIZER]}, spec={"replicas": 1})
        await other.until_condition("CredentialsReady", "True")
        await _lose(other)
        await _delete_namespace(other)
        (told,) = await until(lambda: _told_of(caplog, other), seconds=10)
        command = shlex.split(vars(told)["remedy"])
        assert command[:6] == ["kubectl", "patch", names.SHORT_NAME, "demo", "--namespace", other.namespace]
        assert command[6:-1] == ["--type", "merge", "--patch"]
        held = await other.edit(**json.loads(command[-1]))
        assert held["metadata"]["finalizers"] == ["example.com/held"]


async def test_a_resource_in_a_lost_namespace_is_told_once_and_not_probed(
    world: World, other: World, operators_kubeconfig: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = Key(other.namespace, "demo")
    watched = (other.namespace, world.namespace)
    async with world.operator(kubeconfig=operators_kubeconfig, namespaces=watched) as runtime:
        await other.serve()
        memory = runtime.memories.of(key)
        assert memory.couchbase is not None
        await _lose(other)

        async def is_let_alone() -> bool:
            return memory.couchbase is None

        await until(is_let_alone, seconds=10)
        passes = _passes()
        for each in range(3):
            runtime.wake(key)
            await until(lambda wanted=passes + each + 1: _has_passed(wanted), seconds=10)
        (told,) = await _told_of(caplog, other)
        assert not hasattr(told, "remedy")
        await grant(other)
        runtime.wake(key)

        async def is_probed() -> bool:
            return memory.couchbase is not None and memory.cache is not None and memory.cache.is_healthy is True

        await until(is_probed, seconds=10)


async def test_a_single_missing_verb_is_not_taken_for_a_lost_namespace(
    world: World, operators_kubeconfig: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await grant(world, without="deployments")
    async with _limited(operators_kubeconfig) as cluster:
        watch = asyncio.create_task(
            watch_children(cluster, "Deployment", world.namespace, lambda _, __: None, lambda: None)
        )
        try:
            await until(lambda: _warned(caplog, "watch"), seconds=10)
            await asyncio.sleep(4.0)  # two more tries
            (told,) = await _warned(caplog, "watch")
            assert "deployments" in vars(told)["problem"]
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)


async def test_the_rounds_go_on_past_a_lost_namespace(world: World, other: World, operators_kubeconfig: Path) -> None:
    await world.create()
    await _lose(other)
    memories = Memories()
    for each in (other, world):
        memories.of(Key(each.namespace, "demo")).references = {("Secret", "cb-admin"): "an older version"}
    lives: list[str] = []
    async with _limited(operators_kubeconfig) as cluster:
        queue = WorkQueue(_no_pass, workers=1, clock=time.monotonic)
        patrol = Patrol(cluster, (other.namespace, world.namespace), queue, memories, lives.append)
        await patrol.sweep()
        assert queue.depth == 1
        await patrol.look_at_references()
        assert queue.depth == 2
        lost, kept = (memories.of(Key(each.namespace, "demo")).references for each in (other, world))
        assert kept["Secret", "cb-admin"] == (await world.get("Secret", "cb-admin"))["metadata"]["resourceVersion"]
        await grant(other)
        version = (await other.get("Secret", "cb-admin"))["metadata"]["resourceVersion"]

        async def is_seen_again() -> bool:
            await patrol.look_at_references()
            return bool(lost["Secret", "cb-admin"] == version)

        await until(is_seen_again, seconds=10)


async def test_a_watch_that_is_refused_shows_life(other: World, operators_kubeconfig: Path) -> None:
    await _lose(other)
    is_alive = asyncio.Event()
    async with _limited(operators_kubeconfig) as cluster:
        watch = asyncio.create_task(
            watch_children(cluster, "Deployment", other.namespace, lambda _, __: None, is_alive.set)
        )
        try:
            await asyncio.wait_for(is_alive.wait(), 10)
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)


async def test_what_may_not_be_read_is_told_in_the_resource(world: World, operators_kubeconfig: Path) -> None:
    await grant(world, without="configmaps")
    async with world.operator(kubeconfig=operators_kubeconfig):
        await world.create()
        found = await world.until_condition("Ready", "False", "ModelConfigUnreadable")
        assert "ConfigMap model-config of spec.model.config.configMapRef" in found["message"]


async def test_the_log_tells_a_lost_namespace_once(world: World, other: World, operators_kubeconfig: Path) -> None:
    await _lose(other)
    process = await start_operator(
        world,
        LMCB_KUBECONFIG=str(operators_kubeconfig),
        LMCB_NAMESPACES=f"{other.namespace},{world.namespace}",
        LMCB_SWEEP_SECONDS="0.5",
    )
    try:
        await world.create()
        await until(lambda: world.cluster.get("Deployment", world.namespace, "demo"), seconds=40)
    finally:
        process.send_signal(signal.SIGTERM)
    _, log = await asyncio.wait_for(process.communicate(), 20)
    lines = [json.loads(line) for line in log.decode().splitlines()]
    assert [line.get("namespace") for line in lines if line["level"] != "INFO"] == [other.namespace]


def test_the_event_source_never_gives_up() -> None:
    """With an end, kopf ends the whole operator a minute after one namespace is refused."""
    delays = list(islice(kopf_settings().networking.error_backoffs, 10_000))  # type: ignore[arg-type]
    assert len(delays) == 10_000
    assert max(delays) <= 30


async def _no_pass(_: Key) -> None:
    raise AssertionError("no workers run in these tests")


async def _delete_namespace(world: World) -> None:
    """Begin what ends a namespace; no controller does it here, so the resource is deleted as one would."""
    await world.cluster.api.request("DELETE", KINDS["Namespace"].path("", world.namespace))
    await world.delete(names.KIND, "demo")


async def _is_gone(world: World) -> bool:
    return await world.cluster.get(names.KIND, world.namespace, "demo") is None


def _passes() -> float:
    return sum(each.value for each in next(iter(PASSES.collect())).samples if each.name.endswith("_total"))


async def _has_passed(wanted: float) -> bool:
    return _passes() >= wanted


async def _warned(caplog: pytest.LogCaptureFixture, text: str) -> list[Any]:
    return [each for each in caplog.records if each.levelname == "WARNING" and text in each.getMessage()]


async def _told_of(caplog: pytest.LogCaptureFixture, world: World) -> list[Any]:
    key = str(Key(world.namespace, "demo"))
    return [each for each in caplog.records if each.levelname == "WARNING" and vars(each).get("resource") == key]


async def _told(caplog: pytest.LogCaptureFixture, namespace: str) -> list[Any]:
    return [each for each in caplog.records if each.levelname == "WARNING" and vars(each).get("namespace") == namespace]
