"""RestAPI mode against the emulator: from nothing to a proven login, and all that can go on meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.exceptions import CouchbaseException
from couchbase.options import ClusterOptions

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.couchbase import provisioning
from couchbase_lm_operator.core.verdict import Proceed, Refuse, Wait
from couchbase_lm_operator.io.couchbase.access import Credentials
from e2e.couchbase_emulator import FOREVER, Emulator, running_emulator
from tests.provisioning.administrator import admin_call, bucket_of
from tests.provisioning.arm import BUCKET, MEBIBYTE, PASSWORD, USER, KilledError, arm_for, bucket_goal


@pytest.mark.parametrize(("nodes", "replicas"), [(1, 0), (3, 1)])
async def test_everything_is_made_and_then_nothing_is_written(nodes: int, replicas: int) -> None:
    async with Emulator(nodes=nodes) as emulator:
        arm = arm_for(emulator)
        await arm.until_done()

        bucket = await bucket_of(emulator)
        assert bucket["bucketType"] == "ephemeral"
        assert bucket["evictionPolicy"] == "nruEviction"
        assert bucket["replicaNumber"] == replicas
        assert emulator.documents(BUCKET, "team", "demo") == {}
        user = (await admin_call(emulator, "GET", f"/settings/rbac/users/local/{USER}")).json()
        roles = {(r["role"], r["bucket_name"], r["scope_name"], r["collection_name"]) for r in user["roles"]}
        assert roles == {("data_reader", BUCKET, "team", "demo"), ("data_writer", BUCKET, "team", "demo")}
        assert user["name"].endswith(f"owns {bucket['uuid']}")

        before, status_writes = emulator.mutations, arm.status_writes
        for _ in range(3):
            assert await arm.one_pass() == Proceed()
        assert emulator.mutations == before
        assert arm.status_writes == status_writes


async def test_steady_passes_read_little() -> None:
    async with Emulator() as emulator:
        arm = arm_for(emulator)
        await arm.until_done()
        emulator.counters.rest_requests.clear()
        await arm.one_pass()
        assert emulator.counters.rest_requests.total() <= 9


def test_the_sdk_reaches_its_collection_and_nothing_else() -> None:
    with running_emulator() as emulator:
        emulator.create_bucket("foreign")
        arm = arm_for(emulator)  # type: ignore[arg-type]
        asyncio.run(arm.until_done())
        cluster = Cluster.connect(emulator.connection_string, ClusterOptions(PasswordAuthenticator(USER, PASSWORD)))
        try:
            bucket = cluster.bucket(BUCKET)
            bucket.scope("team").collection("demo").upsert("k", {"v": 1}, timeout=timedelta(seconds=5))
            with pytest.raises(CouchbaseException):
                bucket.default_collection().upsert("k", {"v": 1}, timeout=timedelta(seconds=1))
        finally:
            cluster.close()
        assert set(emulator.documents(BUCKET, "team", "demo")) == {b"k"}


@pytest.mark.parametrize("killed_after", range(10))
async def test_an_operator_killed_anywhere_is_continued_by_the_next(killed_after: int) -> None:
    async with Emulator() as emulator:
        emulator.faults.bucket_warmup_seconds = 0.1
        arm = arm_for(emulator)
        arm.kill_after = killed_after
        try:
            await arm.until_done()
        except KilledError:
            arm.kill_after = None
        await arm.until_done()

        assert arm.actions.count("CreateBucket") == 1
        assert arm.record is not None
        assert arm.record.created
        assert arm.record.uuid == (await bucket_of(emulator))["uuid"]
        assert arm.marker_scope in emulator.cluster.buckets[BUCKET].manifest.scopes


async def test_a_bucket_whose_creation_was_executed_but_not_seen_is_recognised_by_its_intent() -> None:
    async with Emulator() as emulator:
        arm = arm_for(emulator)
        await arm.one_pass()
        assert arm.record is not None
        assert not arm.record.uuid  # the intent only: the answer to the creation is never trusted for the UUID
        await arm.until_done()
        assert arm.actions.count("CreateBucket") == 1


async def test_warm_up_and_slow_propagation_are_waited_for() -> None:
    async with Emulator(nodes=3) as emulator:
        emulator.faults.bucket_warmup_seconds = 0.5
        emulator.faults.user_propagation_delay_seconds = 0.3
        arm = arm_for(emulator)
        reasons = set()
        while not isinstance(verdict := await arm.one_pass(), Proceed):
            assert isinstance(verdict, Wait), verdict
            reasons.add(verdict.reason)
            await asyncio.sleep(0.05)
        assert reasons == {Reason.BUCKET_CREATING, Reason.BUCKET_WARMING_UP, Reason.CREDENTIALS_PENDING}
        assert arm.actions.count("PutUser") == 1


@pytest.mark.parametrize(
    ("fault", "count", "reason"),
    [
        ("http_503", 3, Reason.COUCHBASE_BUSY),
        ("bucket_still_exists", 2, Reason.BUCKET_BEING_DELETED),
        ("http_drop", 2, Reason.COUCHBASE_UNREACHABLE),
    ],
)
async def test_passing_trouble_is_waited_for(fault: str, count: int, reason: Reason) -> None:
    async with Emulator() as emulator:
        arm = arm_for(emulator)
        setattr(emulator.faults, fault, count)
        verdict = await arm.one_pass()
        assert isinstance(verdict, Wait)
        assert verdict.reason is reason
        await arm.until_done()


async def test_a_503_in_the_middle_of_the_steps_is_no_faulty_spec() -> None:
    async with Emulator() as emulator:
        arm = arm_for(emulator)
        await arm.one_pass()
        cluster, original = arm.cluster, emulator.faults
        seen = await cluster.read()
        assert seen is not None
        original.http_503 = FOREVER
        verdict = await arm.one_pass()
        assert isinstance(verdict, Wait)
        assert verdict.reason is Reason.COUCHBASE_BUSY
        original.http_503 = 0
        await arm.until_done()


async def test_lost_status_is_found_again_by_the_mark_of_the_user() -> None:
    async with Emulator() as emulator:
        arm = arm_for(emulator)
        await arm.until_done()
        record, before = arm.record, emulator.mutations
        arm.status = {}
        await arm.until_done()
        assert arm.record == record
        assert emulator.mutations == before


async def test_a_bucket_that_is_not_ours_is_never_touched() -> None:
    async with Emulator() as emulator:
        emulator.create_bucket(BUCKET)
        uuid, before = (await bucket_of(emulator))["uuid"], emulator.mutations
        arm = arm_for(emulator)
        verdict = await arm.one_pass()
        assert isinstance(verdict, Refuse)
        assert verdict.reason is Reason.BUCKET_NOT_OURS
        assert "spec.couchbase.bucket" in verdict.message
        arm.is_deleting = True
        arm.goal = replace(arm.goal, bucket=bucket_goal(reclaim_policy="Delete"))
        assert await arm.one_pass() == Proceed()
        assert emulator.mutations == before
        assert (await bucket_of(emulator))["uuid"] == uuid


async def test_an_intent_does_not_claim_a_bucket_with_foreign_scopes_or_documents() -> None:
    async with Emulator() as emulator:
        arm = arm_for(emulator)
        emulator.faults.http_drop = 0
        arm.kill_after = 1  # the intent is saved, the creation never sent
        with pytest.raises(KilledError):
            await arm.one_pass()
        emulator.create_bucket(BUCKET)
        emulator.create_collection(BUCKET, "their", "data")
        arm.kill_after = None
        verdict = await arm.one_pass()
        assert isinstance(verdict, Refuse)
        assert verdict.reason is Reason.BUCKET_NOT_OURS


async def test_losing_a_race_for_the_name_claims_nothing() -> None:
    async with Emulator() as emulator:
        arm = arm_for(emulator)
        arm.before_step = lambda: emulator.create_bucket(BUCKET)
        assert isinstance(await arm.one_pass(), Wait)
        verdict = await arm.one_pass()
        assert isinstance(verdict, Refuse)
        assert verdict.reason is Reason.BUCKET_NOT_OURS


async def test_a_bucket_replaced_by_a_namesake_is_not_ours_any_more() -> None:
    async with Emulator() as emulator:
        arm = arm_for(emulator)
        await arm.until_done()
        await admin_call(emulator, "DELETE", f"/pools/default/buckets/{BUCKET}")
        emulator.create_bucket(BUCKET)
        verdict = await arm.one_pass()
        assert isinstance(verdict, Refuse)
        assert verdict.reason is Reason.BUCKET_NOT_OURS


async def test_a_user_of_somebody_else_is_never_touched() -> None:
    async with Emulator() as emulator:
        await admin_call(
            emulator, "PUT", f"/settings/rbac/users/local/{USER}", roles="ro_admin", name="Ann", password="hers-alone"
        )
        before = emulator.mutations
        arm = arm_for(emulator)
        verdict = await arm.one_pass()
        assert isinstance(verdict, Refuse)
        assert verdict.reason is Reason.USER_NOT_OURS
        arm.is_deleting = True
        assert await arm.one_pass() == Proceed()
        assert emulator.mutations == before


async def test_another_cluster_behind_the_same_name_starts_from_nothing() -> None:
    async with Emulator() as first, Emulator() as second:
        arm = arm_for(first)
        await arm.until_done()
        moved = arm_for(second).goal
        arm.goal = replace(arm.goal, connection_string=moved.connection_string, management_urls=moved.management_urls)
        await arm.until_done()
        assert arm.record is not None
        assert arm.record.removed_by_others_count == 0
        assert (await bucket_of(second))["uuid"] == arm.record.uuid


async def test_workload_credentials_may_come_later() -> None:
    async with Emulator() as emulator:
        arm = arm_for(emulator)
        arm.user = None
        for _ in range(4):
            verdict = await arm.one_pass()
        assert isinstance(verdict, Wait)
        assert verdict.reason is Reason.CREDENTIALS_PENDING
        assert "demo-couchbase" in verdict.message
        arm.user = Credentials(USER, PASSWORD)
        await arm.until_done()


async def test_only_an_explicit_changed_quota_is_applied() -> None:
    async with Emulator() as emulator:
        arm = arm_for(emulator, bucket=bucket_goal(memory_quota_bytes=200 * MEBIBYTE))
        await arm.until_done()
        assert (await bucket_of(emulator))["quota"]["rawRAM"] == 200 * MEBIBYTE

        await admin_call(emulator, "POST", f"/pools/default/buckets/{BUCKET}", ramQuota="300")
        await arm.until_done()
        assert (await bucket_of(emulator))["quota"]["rawRAM"] == 300 * MEBIBYTE  # an administrator's word stands

        arm.change_bucket(memory_quota_bytes=400 * MEBIBYTE)
        await arm.until_done()
        assert (await bucket_of(emulator))["quota"]["rawRAM"] == 400 * MEBIBYTE

        arm.change_bucket(memory_quota_bytes=None)
        await arm.until_done()
        assert (await bucket_of(emulator))["quota"]["rawRAM"] == 400 * MEBIBYTE


async def test_a_quota_edit_that_does_not_fit_is_refused_and_a_fitting_one_follows() -> None:
    async with Emulator(memory_quota_mib=512) as emulator:
        arm = arm_for(emulator, bucket=bucket_goal(memory_quota_bytes=200 * MEBIBYTE))
        await arm.until_done()
        arm.change_bucket(memory_quota_bytes=600 * MEBIBYTE)
        verdict = await arm.one_pass()
        assert isinstance(verdict, Refuse)
        assert verdict.reason is Reason.QUOTA_EXCEEDS_FREE
        arm.change_bucket(memory_quota_bytes=512 * MEBIBYTE)
        await arm.until_done()


async def test_a_quota_larger_than_free_is_refused_before_anything_is_made() -> None:
    async with Emulator(memory_quota_mib=512) as emulator:
        emulator.create_bucket("other", quota_mib=300)
        before = emulator.mutations
        arm = arm_for(emulator, bucket=bucket_goal(memory_quota_bytes=400 * MEBIBYTE))
        verdict = await arm.one_pass()
        assert isinstance(verdict, Refuse)
        assert verdict.reason is Reason.QUOTA_EXCEEDS_FREE
        assert "spec.couchbase.bucket.memoryQuota is 400 MiB" in verdict.message
        assert "212 MiB" in verdict.message
        assert emulator.mutations == before
        await admin_call(emulator, "DELETE", "/pools/default/buckets/other")
        await arm.until_done()


async def test_a_lost_race_for_memory_is_told_from_the_servers_own_numbers() -> None:
    async with Emulator(memory_quota_mib=512) as emulator:
        arm = arm_for(emulator, bucket=bucket_goal(memory_quota_bytes=400 * MEBIBYTE))
        cluster = arm.cluster
        seen = await cluster.read()
        emulator.create_bucket("faster", quota_mib=300)
        decision = provisioning.decide(arm.goal, seen, credentials_present=True, generation=1)
        outcome = await cluster.execute(decision.steps)
        verdict = provisioning.verdict_after(decision, arm.goal, outcome)
        assert isinstance(verdict, Refuse)
        assert verdict.reason is Reason.QUOTA_EXCEEDS_FREE
        assert "188 MiB per data node short" in verdict.message
