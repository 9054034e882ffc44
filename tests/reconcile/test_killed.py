"""An operator that dies at any write of a first reconcile: the next one finishes, nothing is half-made."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from couchbase_lm_operator import names
from couchbase_lm_operator.io.addresses import AddressGuard
from couchbase_lm_operator.io.cluster import Cluster
from couchbase_lm_operator.io.couchbase import writing
from couchbase_lm_operator.io.kube_api import KubeApi
from couchbase_lm_operator.memory import Memories
from couchbase_lm_operator.runtime import make_reconciler
from couchbase_lm_operator.visits import Visits
from couchbase_lm_operator.work_queue import Key
from e2e.couchbase_emulator import running_emulator

if TYPE_CHECKING:
    from couchbase_lm_operator.reconcile import Reconciler
    from tests.reconcile.world import World


class Killed(BaseException):
    """The process is gone: nothing of it may go on."""


@dataclass
class Fate:
    """Dies at the given write: before it is sent, or after it was carried out and before the answer is seen."""

    at_write: int
    before: bool
    writes: int = 0
    is_dead: bool = False

    def check_alive(self) -> None:
        if self.is_dead:
            raise Killed

    def about_to_write(self) -> None:
        self.check_alive()
        self.writes += 1
        if self.before and self.writes == self.at_write:
            self.is_dead = True
            raise Killed

    def wrote(self) -> None:
        if not self.before and self.writes >= self.at_write:
            self.is_dead = True
        self.check_alive()


class MortalApi(KubeApi):
    """The connection to the API server of an operator with a fate."""

    fate: Fate

    async def request(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        self.fate.check_alive()
        is_dry = "dryRun" in (options.get("query") or {})
        if method == "GET" or is_dry:
            return await super().request(method, path, **options)
        self.fate.about_to_write()
        answer = await super().request(method, path, **options)
        self.fate.wrote()
        return answer


async def _passes(world: World, reconciler: Reconciler, limit: int = 40) -> None:
    """Run passes until the resource waits for nothing but its pods."""
    key = Key(world.namespace, "demo")
    for _ in range(limit):
        delay_seconds = await reconciler.run(key)
        if (await world.condition("CredentialsReady"))["status"] == "True":
            return
        await asyncio.sleep(min(delay_seconds or 0.1, 0.3))
    raise AssertionError(f"not provisioned after {limit} passes: {await world.status()}")


async def _die_and_recover(world: World, monkeypatch: pytest.MonkeyPatch, fate: Fate) -> bool:
    """Run a first operator to its fate and a second to the end; say whether the first one died."""
    execute = writing._execute_one

    async def execute_mortally(*arguments: Any) -> Any:
        fate.about_to_write()
        outcome = await execute(*arguments)
        fate.wrote()
        return outcome

    settings = world.settings()
    with monkeypatch.context() as patched:
        patched.setattr(writing, "_execute_one", execute_mortally)
        async with MortalApi(world.server.kubeconfig) as api:
            api.fate = fate
            mortal = make_reconciler(Cluster(api), AddressGuard(), settings, Memories(), Visits(2, 2, lambda _: None))
            try:
                await _passes(world, mortal)
            except Killed:
                await asyncio.sleep(0)  # whatever ran beside it finds itself dead too
    successor = make_reconciler(world.cluster, AddressGuard(), settings, Memories(), Visits(2, 2, lambda _: None))
    await _passes(world, successor)
    await _assert_whole(world)
    return fate.is_dead


async def _assert_whole(world: World) -> None:
    status = (await world.status())["couchbase"]
    bucket = status["bucket"]
    assert bucket["created"] is True
    assert bucket["uuid"]
    assert bucket["userUUID"]
    assert bucket["removedByOthersCount"] == bucket["userRemovedByOthersCount"] == 0
    assert world.couchbase.call(lambda emulator: sorted(emulator.cluster.buckets)) == [bucket["name"]]
    assert await world.has_user(status["user"])
    for kind in ("Deployment", "Service", "ControllerRevision"):
        found, _ = await world.cluster.objects(kind, world.namespace)
        assert len(found) == 1, kind
    deployment = await world.get("Deployment", "demo")
    assert deployment["metadata"]["ownerReferences"][0]["kind"] == names.KIND


async def test_an_operator_killed_at_any_write_is_continued(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    deaths = 0
    for before in (True, False):
        at_write = 1
        while True:
            with running_emulator(memory_quota_mib=1024) as emulator:
                world.couchbase = emulator
                await world.set_admin_secret()
                await world.create()
                has_died = await _die_and_recover(world, monkeypatch, Fate(at_write, before))
            await world.delete(names.KIND, "demo")
            await world.clear_children()
            deaths += has_died
            if not has_died:
                break
            at_write += 1
    # Secret, intent, bucket, record, keyspace, user, objects, status: once before and once after each
    assert deaths >= 20


async def test_what_others_make_after_a_refusal_is_not_taken_for_what_a_killed_operator_made(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(*_: Any) -> Any:
        raise Killed

    await world.create()
    settings = world.settings()
    with monkeypatch.context() as patched:
        patched.setattr(writing, "_execute_one", die)
        mortal = make_reconciler(world.cluster, AddressGuard(), settings, Memories(), Visits(2, 2, lambda _: None))
        with pytest.raises(Killed):
            await _passes(world, mortal)
    record = (await world.status())["couchbase"]["bucket"]
    assert record["clusterUUID"]
    for number in range(30):
        world.couchbase.create_bucket(f"b{number}", quota_mib=100)
    async with world.operator():
        await world.until_condition("BucketReady", "False", "TooManyBuckets")
        assert not (await world.status())["couchbase"]["bucket"].get("clusterUUID")
        before = world.couchbase_mutations()
        world.couchbase.call(lambda emulator: emulator.cluster.buckets.pop("b0"))
        world.couchbase.create_bucket(record["name"], quota_mib=100)
        await world.edit(spec={"replicas": 1})
        await world.until_condition("BucketReady", "False", "BucketNotOurs")
        assert world.couchbase_mutations() == before
