"""The provisioning arm of a pass: look at Couchbase, decide, write, until nothing is left to do now."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from couchbase_lm_operator.core.couchbase.provisioning import decide, decide_removal, record_after, verdict_after
from couchbase_lm_operator.core.progress import Provisioned
from couchbase_lm_operator.metrics import COUCHBASE_STEPS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from couchbase_lm_operator.core.couchbase.provisioning import ProvisioningDecision
    from couchbase_lm_operator.core.couchbase_state import BucketRecord
    from couchbase_lm_operator.core.verdict import Refuse
    from couchbase_lm_operator.io.couchbase.cluster import CouchbaseCluster

logger = logging.getLogger(__name__)

# bucket, keyspace, user, proof: one more round than a first provisioning has stages
_MAX_ROUNDS = 5


@dataclass(frozen=True)
class Arm:
    """One resource's work at Couchbase. ``save_record`` puts a record into status before steps rely on it."""

    couchbase: CouchbaseCluster
    generation: int
    rival: Refuse | None
    save_record: Callable[[BucketRecord], Awaitable[None]]

    async def provision(self) -> Provisioned:
        """Work towards the goal as far as it goes without waiting."""
        has_credentials = self.couchbase.user is not None

        async def look(couchbase: CouchbaseCluster) -> ProvisioningDecision:
            seen = await couchbase.read() if self.rival is None else None
            return decide(
                couchbase.goal,
                seen,
                credentials_present=has_credentials,
                generation=self.generation,
                rival=self.rival,
            )

        return await self._rounds(look)

    async def remove(self) -> Provisioned:
        """Remove what a deleted resource owned."""

        async def look(couchbase: CouchbaseCluster) -> ProvisioningDecision:
            return decide_removal(couchbase.goal, await couchbase.read())

        return await self._rounds(look)

    async def _rounds(self, look: Callable[[CouchbaseCluster], Awaitable[ProvisioningDecision]]) -> Provisioned:
        couchbase = self.couchbase
        for _ in range(_MAX_ROUNDS):
            before = couchbase.goal.record
            decision = await look(couchbase)
            if decision.record is not None and decision.record != couchbase.goal.record:
                await self.save_record(decision.record)
                couchbase = replace(couchbase, goal=replace(couchbase.goal, record=decision.record))
            outcome = await couchbase.execute(decision.steps)
            for step in decision.steps:
                COUCHBASE_STEPS.labels(type(step).__name__, "asked" if outcome is None else "stopped").inc()
                logger.info(
                    "asked Couchbase", extra={"step": type(step).__name__, "bucket": couchbase.goal.bucket.name}
                )
            verdict = verdict_after(decision, couchbase.goal, outcome)
            record = record_after(decision, before, outcome)
            if record is not None and record != decision.record:
                await self.save_record(record)
            if not decision.steps or outcome is not None:
                break
        return Provisioned(decision.stage, verdict, record or couchbase.goal.record, decision.facts)
