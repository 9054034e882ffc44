"""The provisioning arm as the operator runs it, without Kubernetes: status is a variable here."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator.core.couchbase import bucket_record, ownership, provisioning
from couchbase_lm_operator.core.couchbase_state import BucketGoal, BucketRecord, CouchbaseGoal
from couchbase_lm_operator.core.verdict import Proceed, Refuse, Verdict
from couchbase_lm_operator.io.addresses import AddressGuard
from couchbase_lm_operator.io.couchbase.access import Credentials, TlsTrust
from couchbase_lm_operator.io.couchbase.cluster import CouchbaseCluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from couchbase_lm_operator.core.couchbase.provisioning_steps import Step
    from e2e.couchbase_emulator import Emulator

MEBIBYTE = 1024 * 1024
BUCKET = "lmcache-demo"
USER = "lmcache-user"
PASSWORD = "Generated-Password-of-more-than-32-characters-1"


def bucket_goal(**changes: Any) -> BucketGoal:
    """A bucket as a resource without any bucket fields wants it."""
    goal = BucketGoal(
        name=BUCKET,
        management="Owned",
        bucket_type="Ephemeral",
        memory_quota_bytes=None,
        working_set_bytes=256 * MEBIBYTE,
        replicas=None,
        eviction_policy="nruEviction",
        max_ttl_seconds=0,
        accept_no_auto_failover=False,
        reclaim_policy="Retain",
    )
    return replace(goal, **changes)


def couchbase_goal(connection_string: str, management_urls: tuple[str, ...], **changes: Any) -> CouchbaseGoal:
    """What a resource named demo in namespace team wants."""
    goal = CouchbaseGoal(
        provisioning="RestAPI",
        connection_string=connection_string,
        management_urls=management_urls,
        bucket=bucket_goal(),
        scope="team",
        collection="demo",
        user=USER,
        ownership_mark=ownership.mark("0123abcd", "team", "demo"),
        secret_name="demo-couchbase",
        record=None,
    )
    return replace(goal, **changes)


class KilledError(Exception):
    """The operator died here."""


@dataclass
class Arm:
    """Runs passes for one resource; ``status`` is what a restarted operator would find."""

    goal: CouchbaseGoal
    admin: Credentials | None
    user: Credentials | None
    trust: TlsTrust = field(default_factory=TlsTrust)
    guard: AddressGuard = field(default_factory=AddressGuard)
    generation: int = 1
    status: dict[str, Any] = field(default_factory=dict)
    status_writes: int = 0
    is_deleting: bool = False
    before_step: Callable[[], None] = lambda: None  # what others do between our look and our request
    kill_after: int | None = None  # actions (status writes and steps) until the operator dies
    actions: list[str] = field(default_factory=list)

    @property
    def cluster(self) -> CouchbaseCluster:
        """The cluster as this pass sees it."""
        return CouchbaseCluster(self.current_goal, self.admin, self.user, self.trust, self.guard)

    @property
    def current_goal(self) -> CouchbaseGoal:
        """The goal with the record that status holds."""
        return replace(self.goal, record=self.record)

    @property
    def record(self) -> BucketRecord | None:
        """What status remembers."""
        return bucket_record.from_status(self.status)

    @property
    def marker_scope(self) -> str:
        """The scope that marks the recorded bucket as created for this resource."""
        assert self.record is not None
        return ownership.marker_scope(self.goal.ownership_mark, self.record.uuid)

    def change_bucket(self, **changes: Any) -> None:
        """Edit spec.couchbase.bucket."""
        self.goal = replace(self.goal, bucket=replace(self.goal.bucket, **changes))
        self.generation += 1

    async def one_pass(self) -> Verdict:
        """Look, decide, save, execute."""
        goal, cluster = self.current_goal, self.cluster
        seen = await cluster.read()
        if self.is_deleting:
            decision = provisioning.decide_removal(goal, seen)
        else:
            decision = provisioning.decide(
                goal, seen, credentials_present=self.user is not None, generation=self.generation
            )
        self._save(decision.record)
        for step in decision.steps:
            outcome = await self._execute(cluster, step)
            if outcome is not None:
                is_wanted = provisioning.wants_look_after(decision, goal.record, outcome)
                after = await cluster.read() if is_wanted else None
                self._save(provisioning.record_after(decision, goal.record, outcome, after))
                return provisioning.verdict_after(decision, goal, outcome)
        return decision.verdict

    async def until(self, *kinds: type[Verdict], seconds: float = 15.0) -> Verdict:
        """Run passes until a verdict of one of ``kinds``."""
        async with asyncio.timeout(seconds):
            while True:
                verdict = await self.one_pass()
                if isinstance(verdict, kinds):
                    return verdict
                await asyncio.sleep(0.02)

    async def until_done(self, seconds: float = 15.0) -> None:
        """Run passes until everything stands; a refusal fails the test."""
        verdict = await self.until(Proceed, Refuse, seconds=seconds)
        assert verdict == Proceed(), verdict

    def _save(self, record: BucketRecord | None) -> None:
        if record is not None and record != self.record:
            self._act("SaveRecord")
            self.status = {"bucket": bucket_record.to_status(record)}
            self.status_writes += 1

    async def _execute(self, cluster: CouchbaseCluster, step: Step) -> Any:
        self._act(type(step).__name__)
        self.before_step()
        return await cluster.execute([step])

    def _act(self, what: str) -> None:
        if self.kill_after is not None and len(self.actions) >= self.kill_after:
            raise KilledError(what)
        self.actions.append(what)


def arm_for(emulator: Emulator, **changes: Any) -> Arm:
    """An arm with working credentials."""
    goal = couchbase_goal(emulator.connection_string, tuple(emulator.management_urls))
    goal = replace(goal, **changes)
    return Arm(goal, Credentials(emulator.admin_username, emulator.admin_password), Credentials(goal.user, PASSWORD))
