"""A resource that takes the place of another of its name, while Couchbase is still asked for the one before."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.couchbase.provisioning import decide
from couchbase_lm_operator.core.couchbase_state import BucketRecord
from couchbase_lm_operator.io.couchbase.access import Credentials
from couchbase_lm_operator.memory import Memory
from couchbase_lm_operator.provision_arm import Arm
from couchbase_lm_operator.visits import Visits
from couchbase_lm_operator.work_queue import Key
from e2e.couchbase_emulator import Emulator
from tests.couchbase_gate import Way, gate
from tests.provisioning.arm import USER, arm_for

KEY = Key("team", "demo")


def wake(_: Key) -> None:
    """No queue here."""


async def test_the_end_of_a_visit_for_the_one_before_is_waited_for_and_tells_the_new_one_nothing() -> None:
    saved: list[BucketRecord] = []

    async def save(record: BucketRecord) -> None:
        saved.append(record)

    async with Emulator(memory_quota_mib=8192) as emulator:
        before = arm_for(emulator).cluster
        decision = decide(before.goal, await before.read(), credentials_present=True, generation=1)
        for number in range(30):
            emulator.create_bucket(f"b{number}", quota_mib=100)
        visits, memory = Visits(2, 2, wake), Memory(KEY)
        memory.note_uid("before")
        visit = memory.visit = visits.execute(before, decision, None)
        memory.note_uid("after")
        made_again = replace(before, user=Credentials(USER, "Another-Password-of-more-than-32-characters"))
        told = await Arm(made_again, KEY, visits, memory, save).provision(1, None)
        assert visit.task.done()
        assert told is not None
        assert told.verdict.reason is Reason.TOO_MANY_BUCKETS
        # its own intent first, then its own refusal: the other's refusal voided nothing of it
        assert [bool(record.cluster_uuid) for record in saved] == [True, False]


async def test_nothing_told_of_the_one_before_is_told_of_the_new_one() -> None:
    async def save(_: BucketRecord) -> None:
        pass

    async with Emulator() as emulator, gate(emulator.management_urls[0]) as way_in:
        couchbase = arm_for(emulator).cluster
        couchbase = replace(couchbase, goal=replace(couchbase.goal, management_urls=(way_in.url,)))
        visits, memory = Visits(1, 1, wake), Memory(KEY)
        arm = Arm(couchbase, KEY, visits, memory, save)
        memory.note_uid("before")
        told = await arm.provision(1, None)
        assert told is not None
        assert told.is_done
        way_in.way = Way.SILENT
        way_in.came.clear()
        visits.look(couchbase)
        await way_in.came.wait()  # the only slot is taken, so passes wait for nothing
        again = await arm.provision(1, None)
        assert again is not None
        assert again.is_done
        look = memory.visit
        memory.note_uid("after")
        assert memory.visit is None
        assert look is not None
        await asyncio.wait({look.task})
        assert look.task.cancelled()
        assert await arm.provision(1, None) is None
        await visits.close()
