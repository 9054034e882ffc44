"""The provisioning arm of a pass: take up what Couchbase answered, decide, save, and send the next visit.

A pass waits for its visits a short while only. What is not back by then goes on beside the passes and asks for
another one when it ends; until then status tells what was known before.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from couchbase_lm_operator.core.couchbase.provisioning import decide, decide_removal, record_after, verdict_after
from couchbase_lm_operator.core.couchbase.provisioning_steps import CreateBucket
from couchbase_lm_operator.core.progress import Provisioned
from couchbase_lm_operator.core.verdict import Refuse
from couchbase_lm_operator.memory import Refused
from couchbase_lm_operator.metrics import COUCHBASE_STEPS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from couchbase_lm_operator.core.couchbase.provisioning import ProvisioningDecision
    from couchbase_lm_operator.core.couchbase.provisioning_steps import Step
    from couchbase_lm_operator.core.couchbase_state import (
        BucketRecord,
        CouchbaseGoal,
        CouchbaseState,
        CouchbaseTrouble,
    )
    from couchbase_lm_operator.io.couchbase.cluster import CouchbaseCluster
    from couchbase_lm_operator.memory import Memory
    from couchbase_lm_operator.visits import Finding, Visit, Visits
    from couchbase_lm_operator.work_queue import Key

    Judge = Callable[[CouchbaseGoal, CouchbaseState | CouchbaseTrouble | None], ProvisioningDecision]

logger = logging.getLogger(__name__)

# bucket, keyspace, user, proof: one more round than a first provisioning has stages, after a first look
_MAX_ROUNDS = 6
_CREATION_APART_SECONDS = 4.0


@dataclass(frozen=True)
class Arm:
    """One resource's work at Couchbase. ``save_record`` puts a record into status before steps rely on it.

    The visit under way is in ``memory``: one that only looks is given up when something else is to be asked, one
    that executes steps is always seen to its end.
    """

    couchbase: CouchbaseCluster
    key: Key
    visits: Visits
    memory: Memory
    save_record: Callable[[BucketRecord], Awaitable[None]]

    async def provision(self, generation: int, rival: Refuse | None) -> Provisioned | None:
        """Work towards the goal as far as it goes without waiting long; None when nothing is known yet."""
        has_credentials = self.couchbase.user is not None

        def judge(goal: CouchbaseGoal, seen: CouchbaseState | CouchbaseTrouble | None) -> ProvisioningDecision:
            return decide(goal, seen, credentials_present=has_credentials, generation=generation, rival=rival)

        if rival is not None:
            self.memory.give_up_look()
            return _told(judge(self.couchbase.goal, None), self.couchbase)
        with self.visits.patience(self.couchbase) as until:
            return await self._rounds(judge, until)

    async def remove(self) -> Provisioned | None:
        """Remove what a deleted resource owned; None when nothing is known yet."""
        with self.visits.patience(self.couchbase) as until:
            return await self._rounds(decide_removal, until)

    async def _rounds(self, judge: Judge, until: float) -> Provisioned | None:
        couchbase, told = self.couchbase, None
        for rounds_left in reversed(range(_MAX_ROUNDS)):
            visit = self._visit(couchbase)
            if not await visit.has_ended(until):
                visit.when_ended(lambda: self.visits.wake(self.key))
                told = told or self._remembered(couchbase)
                break
            finding, is_own = self._finding(visit), visit.is_for(couchbase)
            if visit.decision is not None and not visit.is_orphan:
                record = record_after(visit.decision, visit.before, finding.outcome, finding.seen)
                if record != visit.decision.record:  # which is in status already, and void now
                    couchbase = await self._with_record(couchbase, record)
                    self.memory.creation_refused_at = finding.ended_at
                _log(visit, visit.decision, finding)
                verdict = verdict_after(visit.decision, visit.couchbase.goal, finding.outcome)
                told = replace(_told(visit.decision, couchbase), verdict=verdict) if is_own else None
                self.memory.refused = _refused(visit.decision, couchbase, told)
            self.memory.visit = None  # not before its record is safe
            if told is not None and finding.outcome is not None:
                break
            if not is_own or not finding.is_fresh:
                continue
            decision, before = judge(couchbase.goal, finding.seen), couchbase.goal.record
            if _creates_bucket(decision) and self._was_refused_just_now(couchbase):
                return self._remembered(couchbase)
            couchbase = await self._with_record(couchbase, decision.record)
            told = self._told_meanwhile(decision, couchbase)
            if not decision.steps or not rounds_left:
                break
            self.memory.visit = self.visits.execute(couchbase, decision, before)
        if told is not None:
            self.memory.provisioned = (couchbase, told)
        return told

    def _finding(self, visit: Visit) -> Finding:
        try:
            return visit.task.result()
        except BaseException:
            self.memory.visit = None  # the next pass must not meet the same again
            raise

    def _visit(self, couchbase: CouchbaseCluster) -> Visit:
        """Return the visit under way, or a new look."""
        visit = self.memory.visit
        if visit is not None and (visit.decision is not None or visit.is_for(couchbase)):
            return visit
        self.memory.give_up_look()
        visit = self.memory.visit = self.visits.look(couchbase)
        return visit

    async def _with_record(self, couchbase: CouchbaseCluster, record: BucketRecord | None) -> CouchbaseCluster:
        if record is None or record == couchbase.goal.record:
            return couchbase
        await self.save_record(record)
        return replace(couchbase, goal=replace(couchbase.goal, record=record))

    def _was_refused_just_now(self, couchbase: CouchbaseCluster) -> bool:
        """Say whether the same creation would be tried again at once.

        Each try writes an intent and takes it back: the events of these writes must not bring the next one.
        """
        since = asyncio.get_running_loop().time() - self.memory.creation_refused_at
        return since < _CREATION_APART_SECONDS and self._remembered(couchbase) is not None

    def _remembered(self, couchbase: CouchbaseCluster) -> Provisioned | None:
        """Return what an earlier pass told when it asked the same."""
        if self.memory.provisioned is None:
            return None
        asked, told = self.memory.provisioned
        return replace(told, record=couchbase.goal.record) if asked.asks_same(couchbase) else None

    def _told_meanwhile(self, decision: ProvisioningDecision, couchbase: CouchbaseCluster) -> Provisioned:
        """Return what to tell while steps are executed: still the refusal if the same ones were just refused.

        Otherwise each try would take the refusal back and tell it again.
        """
        refused, told = self.memory.refused, _told(decision, couchbase)
        if refused is None:
            return told
        is_again = bool(decision.steps) and _kinds(decision) <= refused.steps and refused.couchbase.asks_same(couchbase)
        if is_again:
            return replace(told, stage=refused.told.stage, verdict=refused.told.verdict)
        self.memory.refused = None
        return told


def _creates_bucket(decision: ProvisioningDecision) -> bool:
    return any(isinstance(step, CreateBucket) for step in decision.steps)


def _kinds(decision: ProvisioningDecision) -> frozenset[type[Step]]:
    return frozenset(type(step) for step in decision.steps)


def _refused(decision: ProvisioningDecision, couchbase: CouchbaseCluster, told: Provisioned | None) -> Refused | None:
    if told is None or not isinstance(told.verdict, Refuse):
        return None
    return Refused(couchbase, _kinds(decision), told)


def _told(decision: ProvisioningDecision, couchbase: CouchbaseCluster) -> Provisioned:
    return Provisioned(decision.stage, decision.verdict, couchbase.goal.record, decision.facts)


def _log(visit: Visit, decision: ProvisioningDecision, finding: Finding) -> None:
    for step in decision.steps:
        COUCHBASE_STEPS.labels(type(step).__name__, "asked" if finding.outcome is None else "stopped").inc()
        what = {"step": type(step).__name__, "bucket": visit.couchbase.goal.bucket.name}
        logger.info("asked Couchbase", extra=what)
