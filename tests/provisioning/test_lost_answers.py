"""Whose a bucket is when the answer to its creation was lost, and later tries are refused."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.verdict import Refuse
from e2e.couchbase_emulator import Emulator
from tests.provisioning.administrator import admin_call
from tests.provisioning.arm import BUCKET, Arm, KilledError, arm_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def intent_without_answer(buckets: int) -> AsyncIterator[tuple[Emulator, Arm]]:
    """An operator that died after it recorded its intent; then others make so many buckets."""
    async with Emulator(memory_quota_mib=8192) as emulator:
        arm = arm_for(emulator)
        arm.kill_after = 1
        with pytest.raises(KilledError):
            await arm.one_pass()
        arm.kill_after = None
        assert arm.record is not None
        for number in range(buckets):
            emulator.create_bucket(f"b{number}", quota_mib=100)
        yield emulator, arm


async def told_of(arm: Arm) -> Reason:
    verdict = await arm.one_pass()
    assert isinstance(verdict, Refuse), verdict
    return verdict.reason


async def test_a_bucket_that_others_make_after_a_refusal_is_never_ours() -> None:
    async with intent_without_answer(buckets=30) as (emulator, arm):
        assert await told_of(arm) is Reason.TOO_MANY_BUCKETS
        assert arm.record is None
        await admin_call(emulator, "DELETE", "/pools/default/buckets/b0")
        emulator.create_bucket(BUCKET, quota_mib=100)
        assert await told_of(arm) is Reason.BUCKET_NOT_OURS


async def test_an_operator_killed_between_refusal_and_record_voids_the_intent_at_the_next_refusal() -> None:
    async with intent_without_answer(buckets=30) as (_, arm):
        arm.kill_after = len(arm.actions) + 1
        with pytest.raises(KilledError):
            await arm.one_pass()
        assert arm.record is not None
        arm.kill_after = None
        assert await told_of(arm) is Reason.TOO_MANY_BUCKETS
        assert arm.record is None


async def test_a_late_creation_that_took_the_last_place_is_ours_although_the_next_try_is_refused() -> None:
    async with intent_without_answer(buckets=29) as (emulator, arm):
        # the first request is carried out only after the second try has looked
        arm.before_step = lambda: emulator.create_bucket(BUCKET, bucket_type="ephemeral", quota_mib=100)
        assert await told_of(arm) is Reason.TOO_MANY_BUCKETS
        arm.before_step = lambda: None
        await arm.until_done()
        assert arm.record is not None
        assert arm.record.created
        assert arm.actions.count("CreateBucket") == 1
