"""What a deleted resource takes with it at Couchbase."""

from __future__ import annotations

import pytest

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.provisioning_steps import DeleteBucket, DeleteUser, EditBucketQuota
from couchbase_lm_operator.core.provisioning_trouble import StepFailure, StepProblem
from couchbase_lm_operator.core.verdict import Proceed, Wait
from e2e.couchbase_emulator import Emulator
from tests.provisioning.arm import BUCKET, MEBIBYTE, USER, Arm, KilledError, arm_for, bucket_goal


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
