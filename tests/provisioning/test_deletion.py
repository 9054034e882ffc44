"""What a deleted resource takes with it at Couchbase."""

from __future__ import annotations

from dataclasses import replace

import pytest

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.couchbase import ownership
from couchbase_lm_operator.core.couchbase.provisioning_steps import DeleteBucket, DeleteUser, EditBucketQuota
from couchbase_lm_operator.core.couchbase.provisioning_trouble import StepFailure, StepProblem
from couchbase_lm_operator.core.verdict import Proceed, Refuse, Wait
from couchbase_lm_operator.io.couchbase.access import Credentials
from e2e.couchbase_emulator import Emulator
from tests.provisioning.arm import BUCKET, MEBIBYTE, PASSWORD, USER, Arm, KilledError, arm_for, bucket_goal


def names(emulator: Emulator) -> tuple[set[str], set[str]]:
    """Buckets and users that exist."""
    return set(emulator.cluster.buckets), set(emulator.cluster.users)


async def provisioned(emulator: Emulator, **bucket: object) -> Arm:
    arm = arm_for(emulator, bucket=bucket_goal(**bucket))
    await arm.until_done()
    return arm


async def test_retain_removes_the_user_and_keeps_the_documents() -> None:
    async with Emulator() as emulator:
        arm = await provisioned(emulator)
        arm.is_deleting = True
        await arm.until_done()
        assert names(emulator) == ({BUCKET}, set())
        before = emulator.mutations
        assert await arm.one_pass() == Proceed()
        assert emulator.mutations == before


async def applied_again(emulator: Emulator, arm: Arm, **bucket: object) -> Arm:
    """Delete a resource that keeps its bucket and make it anew, with another password and without a status."""
    arm.is_deleting = True
    await arm.until_done()
    assert names(emulator) == ({BUCKET}, set())
    again = arm_for(emulator, bucket=bucket_goal(**bucket))
    again.user = Credentials(USER, PASSWORD[::-1])
    return again


@pytest.mark.parametrize("nodes", [1, 3])
async def test_a_kept_bucket_is_used_again_by_the_same_resource(nodes: int) -> None:
    async with Emulator(nodes=nodes) as emulator:
        arm = await provisioned(emulator)
        uuid = emulator.cluster.buckets[BUCKET].uuid
        again = await applied_again(emulator, arm)
        await again.until_done()
        assert emulator.cluster.buckets[BUCKET].uuid == uuid
        assert again.record is not None
        assert (again.record.uuid, again.record.created) == (uuid, True)
        assert "CreateScope" not in again.actions
        before = emulator.mutations
        assert await again.one_pass() == Proceed()
        assert emulator.mutations == before


async def test_a_kept_bucket_goes_with_the_resource_that_took_it_back_when_asked_for() -> None:
    async with Emulator() as emulator:
        again = await applied_again(emulator, await provisioned(emulator), reclaim_policy="Delete")
        await again.until_done()
        again.is_deleting = True
        await again.until_done()
        assert names(emulator) == (set(), set())


async def test_a_kept_bucket_used_as_shared_meanwhile_is_still_ours() -> None:
    async with Emulator() as emulator:
        again = await applied_again(emulator, await provisioned(emulator), management="Shared")
        await again.until_done()
        assert again.record is not None
        assert not again.record.created
        again.change_bucket(management="Owned")
        await again.until_done()
        assert again.record.created


@pytest.mark.parametrize(
    "owner", [("0123abcd", "team", "other"), ("0123abcd", "other", "demo"), ("ffffffff", "team", "demo")]
)
async def test_a_kept_bucket_is_not_given_to_another_resource(owner: tuple[str, str, str]) -> None:
    async with Emulator() as emulator:
        again = await applied_again(emulator, await provisioned(emulator), reclaim_policy="Delete")
        again.goal = replace(again.goal, ownership_mark=ownership.mark(*owner))
        before = emulator.mutations
        verdict = await again.one_pass()
        assert isinstance(verdict, Refuse)
        assert verdict.reason is Reason.BUCKET_NOT_OURS
        again.is_deleting = True
        assert await again.one_pass() == Proceed()
        assert emulator.mutations == before


async def test_a_copied_marker_makes_no_other_bucket_ours() -> None:
    async with Emulator() as emulator:
        arm = await provisioned(emulator, reclaim_policy="Retain")
        marker = arm.marker_scope
        again = await applied_again(emulator, arm, reclaim_policy="Delete")
        emulator.cluster.remove_bucket(BUCKET)
        emulator.create_bucket(BUCKET)  # as a restore from a backup makes it, scopes and all
        emulator.create_collection(BUCKET, marker, "any")
        verdict = await again.one_pass()
        assert isinstance(verdict, Refuse)
        assert verdict.reason is Reason.BUCKET_NOT_OURS
        again.is_deleting = True
        assert await again.one_pass() == Proceed()
        assert names(emulator) == ({BUCKET}, set())


@pytest.mark.parametrize("killed_after", range(5))
async def test_taking_a_kept_bucket_back_survives_a_death_anywhere(killed_after: int) -> None:
    async with Emulator() as emulator:
        again = await applied_again(emulator, await provisioned(emulator))
        again.kill_after = killed_after
        try:
            await again.until_done()
        except KilledError:
            again.kill_after = None
        await again.until_done()
        assert again.record is not None
        assert (again.record.created, again.record.user_removed_by_others_count) == (True, 0)


async def test_delete_removes_user_and_bucket() -> None:
    async with Emulator() as emulator:
        arm = await provisioned(emulator, reclaim_policy="Delete")
        arm.is_deleting = True
        await arm.until_done()
        assert names(emulator) == (set(), set())


async def test_delete_waits_for_a_bucket_that_shuts_down_slowly() -> None:
    async with Emulator() as emulator:
        arm = await provisioned(emulator, reclaim_policy="Delete")
        emulator.faults.bucket_delete_seconds = 0.3
        emulator.faults.bucket_delete_incomplete = 1
        arm.is_deleting = True
        verdict = await arm.one_pass()
        assert isinstance(verdict, Wait)
        assert verdict.reason is Reason.DELETING
        await arm.until_done()
        assert names(emulator) == (set(), set())


async def test_delete_keeps_a_namesake_that_replaced_our_bucket() -> None:
    async with Emulator() as emulator:
        arm = await provisioned(emulator, reclaim_policy="Delete")
        emulator.cluster.remove_bucket(BUCKET)
        emulator.create_bucket(BUCKET)
        arm.is_deleting = True
        await arm.until_done()
        assert names(emulator) == ({BUCKET}, set())


async def test_the_server_itself_guards_edits_and_deletions_by_uuid() -> None:
    async with Emulator() as emulator:
        arm = await provisioned(emulator)
        before = emulator.cluster.buckets[BUCKET].settings
        cluster = arm.cluster
        outcome = await cluster.execute([EditBucketQuota(BUCKET, "0" * 32, 300 * MEBIBYTE)])
        assert isinstance(outcome, StepFailure)
        assert outcome.problem is StepProblem.VANISHED
        assert await cluster.execute([DeleteBucket(BUCKET, "0" * 32)]) is None  # ours is gone: nothing to do
        assert emulator.cluster.buckets[BUCKET].settings == before


async def test_a_user_that_changed_hands_meanwhile_is_kept() -> None:
    async with Emulator() as emulator:
        arm = await provisioned(emulator)
        outcome = await arm.cluster.execute([DeleteUser(USER, "another mark")])
        assert isinstance(outcome, StepFailure)
        assert outcome.problem is StepProblem.USER_CHANGED
        assert names(emulator) == ({BUCKET}, {USER})


async def test_delete_keeps_a_shared_bucket() -> None:
    async with Emulator() as emulator:
        emulator.create_bucket(BUCKET)
        arm = await provisioned(emulator, management="Shared", reclaim_policy="Delete")
        arm.status = {}
        arm.goal = arm_for(emulator, bucket=bucket_goal(management="Owned", reclaim_policy="Delete")).goal
        arm.is_deleting = True
        await arm.until_done()
        assert names(emulator) == ({BUCKET}, set())


@pytest.mark.parametrize("killed_after", range(3))
async def test_delete_recognises_our_bucket_although_status_was_lost_and_the_operator_died(killed_after: int) -> None:
    async with Emulator() as emulator:
        arm = await provisioned(emulator, reclaim_policy="Delete")
        arm.status, arm.is_deleting = {}, True
        arm.kill_after = len(arm.actions) + killed_after
        with pytest.raises(KilledError):
            await arm.until_done()
        arm.status = {}
        arm.kill_after = None
        await arm.until_done()
        assert names(emulator) == (set(), set())


async def test_deleting_before_anything_was_made_is_done_at_once() -> None:
    async with Emulator() as emulator:
        arm = arm_for(emulator, bucket=bucket_goal(reclaim_policy="Delete"))
        arm.is_deleting = True
        assert await arm.one_pass() == Proceed()
