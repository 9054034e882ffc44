"""Visits: they end whatever Couchbase does, few at a time, and leave passes the workers that others need."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from couchbase_lm_operator import visits as visits_module
from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.couchbase.provisioning import decide, record_after
from couchbase_lm_operator.core.couchbase.provisioning_trouble import verdict_of
from couchbase_lm_operator.core.couchbase_state import CouchbaseTrouble, Trouble
from couchbase_lm_operator.core.verdict import Wait
from couchbase_lm_operator.io.couchbase import http as couchbase_http
from couchbase_lm_operator.io.couchbase.cluster import CouchbaseCluster
from couchbase_lm_operator.visits import Visits
from e2e.couchbase_emulator import Emulator
from tests.couchbase_gate import Way, gate
from tests.provisioning.arm import arm_for

if TYPE_CHECKING:
    import pytest

    from couchbase_lm_operator.core.couchbase_state import CouchbaseState
    from couchbase_lm_operator.visits import Visit
    from couchbase_lm_operator.work_queue import Key


@dataclass(frozen=True)
class Deaf(CouchbaseCluster):
    """A cluster in a library that swallows so many cancellations."""

    deaf_to: list[int] = field(default_factory=list)
    began: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self) -> CouchbaseState | CouchbaseTrouble | None:
        self.began.set()
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if not self.deaf_to:
                    raise
                self.deaf_to.pop()


def wake(_: Key) -> None:
    raise AssertionError("no pass waits here")


def at(couchbase: CouchbaseCluster, *urls: str) -> CouchbaseCluster:
    return replace(couchbase, goal=replace(couchbase.goal, management_urls=urls))


async def test_a_look_at_many_silent_addresses_ends() -> None:
    async with Emulator() as emulator, AsyncExitStack() as stack:
        urls = [(await stack.enter_async_context(gate(way=Way.SILENT))).url for _ in range(5)]
        visits = Visits(2, 2, wake, deadline_seconds=0.5)
        async with asyncio.timeout(5):
            finding = await visits.look(at(arm_for(emulator).cluster, *urls)).task
        assert isinstance(finding.seen, CouchbaseTrouble)
        assert finding.seen.kind is Trouble.UNREACHABLE
        assert "too slow" in finding.seen.detail
        verdict = verdict_of(finding.seen)
        assert isinstance(verdict, Wait)
        assert verdict.reason is Reason.COUCHBASE_UNREACHABLE


async def test_a_creation_whose_answer_is_lost_at_the_deadline_stays_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for visit_seconds, request_seconds in ((0.5, 10.0), (10.0, 0.5)):
        monkeypatch.setattr(couchbase_http, "READ_TIMEOUT_SECONDS", request_seconds)
        async with Emulator() as emulator, gate(emulator.management_urls[0], Way.ANSWERLESS) as way_in:
            arm = arm_for(emulator)
            goal = arm.current_goal
            decision = decide(goal, await arm.cluster.read(), credentials_present=True, generation=1)
            visits = Visits(2, 2, wake, deadline_seconds=visit_seconds)
            finding = await visits.execute(at(arm.cluster, way_in.url), decision, None).task
            assert isinstance(finding.outcome, CouchbaseTrouble)
            assert list(emulator.cluster.buckets) == [goal.bucket.name]
            record = record_after(decision, None, finding.outcome, finding.seen)
            assert record is not None
            assert record == decision.record
            arm.goal = replace(arm.goal, record=record)
            seen = await arm.cluster.read()
            later = decide(replace(goal, record=record), seen, credentials_present=True, generation=1)
            assert later.record is not None
            assert later.record.created


async def test_one_cluster_is_asked_for_so_many_resources_at_a_time_and_others_do_not_wait() -> None:
    async with Emulator() as emulator, gate(way=Way.SILENT) as silent:
        visits = Visits(2, 2, wake)
        good, bad = arm_for(emulator).cluster, at(arm_for(emulator).cluster, silent.url)
        waiting: list[Visit] = [visits.look(bad) for _ in range(4)]
        await silent.came.wait()
        with visits.patience(bad) as until:
            assert until <= asyncio.get_running_loop().time()  # its turn is not near
        with visits.patience(good) as one, visits.patience(good) as two, visits.patience(good) as three:
            now = asyncio.get_running_loop().time()
            assert min(one, two) > now
            assert three <= now  # a worker remains for passes that need no Couchbase
            assert await visits.look(good).has_ended(one)
        assert silent.connections == 2
        await visits.close()
        assert all(each.task.cancelled() for each in waiting)


async def test_places_that_nobody_visits_are_forgotten_and_slow_ones_only_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Emulator() as emulator, gate(way=Way.SILENT) as silent:
        visits = Visits(2, 2, wake, deadline_seconds=0.3)
        good, mute = arm_for(emulator).cluster, at(arm_for(emulator).cluster, silent.url)
        for number in range(20):
            elsewhere = at(good, *good.goal.management_urls, f"http://127.0.0.1:{number + 1}")
            with visits.patience(elsewhere) as until:
                assert await visits.look(elsewhere).has_ended(until)
        assert visits.place_count == 0
        monkeypatch.setattr(visits_module, "PATIENCE_SECONDS", 0.1)
        await visits.look(mute).task
        await visits.look(good).task
        assert visits.place_count == 1
        with visits.patience(mute) as until:
            assert until <= asyncio.get_running_loop().time()  # it is remembered to be slow
        monkeypatch.setattr(visits_module, "SLOW_SECONDS", 0.0)
        await visits.look(good).task
        assert visits.place_count == 0


async def test_a_visit_that_swallows_its_cancellation_holds_the_end_up_no_longer_than_it_has_to() -> None:
    async with Emulator() as emulator:
        cluster = arm_for(emulator).cluster
        couchbase = Deaf(cluster.goal, cluster.admin, cluster.user, deaf_to=[1, 2])
        visits = Visits(2, 2, wake)
        task = visits.look(couchbase).task
        await couchbase.began.wait()
        async with asyncio.timeout(10):
            await visits.close()
        assert task.done()
        assert couchbase.deaf_to == []
