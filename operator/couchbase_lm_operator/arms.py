"""From a gathered picture to what was done about it: check, plan, render, and the two arms side by side."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar, cast

from couchbase_lm_operator import workload_arm
from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.cache_probe import probe_goal
from couchbase_lm_operator.core.checks import check
from couchbase_lm_operator.core.children.lost_record import deployment_of
from couchbase_lm_operator.core.children.readiness import workload_state
from couchbase_lm_operator.core.children.service_url import service_url
from couchbase_lm_operator.core.couchbase import claims
from couchbase_lm_operator.core.couchbase.provisioning import CouchbaseFacts, Stage
from couchbase_lm_operator.core.facts import template_facts
from couchbase_lm_operator.core.observed import Missing, Unread
from couchbase_lm_operator.core.plan import make_plan
from couchbase_lm_operator.core.pod_template.workload import frame
from couchbase_lm_operator.core.progress import HEALTHY, CacheHealth, Progress, Provisioned
from couchbase_lm_operator.core.reference_verdict import reference_verdict
from couchbase_lm_operator.core.render import pod_template_hash, render, render_frame
from couchbase_lm_operator.core.repair_goal import repair_goal
from couchbase_lm_operator.core.spec_bounds import is_rollout_refused
from couchbase_lm_operator.core.verdict import Proceed, Refuse, Wait
from couchbase_lm_operator.errors import ClusterRefusedError
from couchbase_lm_operator.io import credentials
from couchbase_lm_operator.io.couchbase.cluster import CouchbaseCluster
from couchbase_lm_operator.io.couchbase.named_cluster import login, named_cluster
from couchbase_lm_operator.provision_arm import Arm
from couchbase_lm_operator.work_queue import Key
from couchbase_lm_operator.workload_arm import Applied

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec
    from couchbase_lm_operator.core.couchbase_state import CouchbaseGoal
    from couchbase_lm_operator.core.defaults import Defaults
    from couchbase_lm_operator.core.observed import Observed
    from couchbase_lm_operator.core.plan import Plan
    from couchbase_lm_operator.core.verdict import Verdict
    from couchbase_lm_operator.io.addresses import AddressGuard
    from couchbase_lm_operator.io.cluster import Cluster
    from couchbase_lm_operator.io.couchbase.access import Credentials
    from couchbase_lm_operator.memory import Memory
    from couchbase_lm_operator.status_writer import StatusWriter
    from couchbase_lm_operator.visits import Visits

logger = logging.getLogger(__name__)

_REFUSED_DELAY_SECONDS = 30.0
_A = TypeVar("_A")
_B = TypeVar("_B")


@dataclass(frozen=True)
class Arms:
    """Both arms."""

    cluster: Cluster
    defaults: Defaults
    guard: AddressGuard
    visits: Visits

    async def work(
        self, spec: LMCacheCouchbaseSpec, observed: Observed, writer: StatusWriter, memory: Memory
    ) -> Progress:
        """Bring the spec into effect as far as it goes now.

        Raises:
            ClusterError: the API server did not answer, or somebody else wrote meanwhile.
        """
        self.watch_cache(spec, observed, memory)
        deployment = deployment_of(observed.resource, observed.children)
        progress = Progress(
            observed=observed,
            is_suspended=False,
            plan=None,
            verdict=check(spec, observed, self.defaults),
            provisioned=None,
            workload=workload_state(deployment, observed.pods),
            pin=None,
            cache=memory.cache,
        )
        plan = make_plan(spec, observed, self.defaults) if isinstance(progress.verdict, Proceed) else None
        goal = plan.couchbase if plan is not None else repair_goal(spec, observed)
        progress = replace(progress, plan=plan, goal=goal)
        if goal is None:
            return _after(progress, await self._hold(spec, observed, progress.verdict))
        user = await self._user(goal, observed)
        if isinstance(user, Refuse):
            why = progress.verdict if plan is None else user
            return _after(progress, await self._hold(spec, observed, why))
        if user is not None:
            memory.note_made("Secret", goal.secret_name)
        couchbase = self._couchbase(spec, goal, observed, user)
        provisioned, applied = await _both(
            self._provision(couchbase, observed, writer, memory),
            self._hold(spec, observed, progress.verdict) if plan is None else self._apply(spec, plan, observed),
        )
        progress = _after(replace(progress, provisioned=provisioned), applied)
        if not progress.is_provisioned:
            memory.couchbase = None
            memory.note_cache(None)
        elif isinstance(couchbase, CouchbaseCluster):
            memory.probe(_for_probes(couchbase))
        if provisioned is not None and provisioned.is_done and memory.visit is None and memory.cache is None:
            # no visit is under way, so the proof of login was just made: the first probe need not be waited for
            memory.note_cache(HEALTHY)
        return replace(progress, cache=memory.cache)

    def watch_cache(self, spec: LMCacheCouchbaseSpec | None, observed: Observed, memory: Memory) -> None:
        """Let probes look at the cache that pods use, whatever becomes of the spec (None: it cannot be used).

        Where this pass cannot tell which that is, probes go on with what an earlier one knew.
        """
        found = probe_goal(spec, observed)
        if isinstance(found, CacheHealth):
            if memory.couchbase is None:
                memory.note_cache(found)
        elif spec is not None and found is not None:
            memory.probe(_for_probes(self._access(spec, found, observed, login(observed.user_credentials))))

    async def _user(self, goal: CouchbaseGoal, observed: Observed) -> Credentials | Refuse | None:
        """Return the credentials that the pods mount, generated when they are ours to make."""
        if goal.provisioning == "RestAPI":
            return await credentials.ensure(self.cluster, observed.resource, goal.secret_name, goal.user)
        return login(observed.user_credentials)

    async def _apply(self, spec: LMCacheCouchbaseSpec, plan: Plan, observed: Observed) -> Applied:
        try:
            applied = await workload_arm.run(
                self.cluster,
                observed,
                render(plan),
                fields_hash=pod_template_hash(plan),
                facts=template_facts(plan),
                approved=spec.rollout.approve or "",
            )
        except ClusterRefusedError as error:
            told = f"The API server refused {error.what} ({error.reason}): {error.message}"
            return workload_arm.untouched(Wait(Reason.CLUSTER_REFUSED, told, _REFUSED_DELAY_SECONDS), observed)
        is_refused = isinstance(applied.verdict, Refuse)
        return await self._hold(spec, observed, applied.verdict) if is_refused else applied

    async def _hold(self, spec: LMCacheCouchbaseSpec, observed: Observed, verdict: Verdict) -> Applied:
        """Leave pods as they are for the reason of ``verdict``, and see to all that does not shape them."""
        around = render_frame(frame(spec, observed.namespace, observed.name))
        is_refused = is_rollout_refused(spec)
        try:
            return await workload_arm.hold(self.cluster, observed, around, verdict, is_rollout_refused=is_refused)
        except ClusterRefusedError as error:
            what = {"resource": f"{observed.namespace}/{observed.name}", "problem": str(error)}
            logger.warning("what does not shape pods could not be applied", extra=what)
            return workload_arm.untouched(verdict, observed)

    def _couchbase(
        self, spec: LMCacheCouchbaseSpec, goal: CouchbaseGoal, observed: Observed, user: Credentials | None
    ) -> CouchbaseCluster | Provisioned:
        """Return access to the cluster, or how far it goes without a Secret or a CA that is not there."""
        is_external = goal.provisioning == "External"
        admin = observed.admin_credentials
        for needed in (observed.ca_pem, observed.user_credentials if is_external else admin):
            if isinstance(needed, Missing | Unread):
                return Provisioned(Stage.REACH, reference_verdict(needed), goal.record, CouchbaseFacts())
        return self._access(spec, goal, observed, user)

    def _access(
        self, spec: LMCacheCouchbaseSpec, goal: CouchbaseGoal, observed: Observed, user: Credentials | None
    ) -> CouchbaseCluster:
        admin, ca_pem = observed.admin_credentials, observed.ca_pem
        return named_cluster(spec.couchbase, goal, admin=admin, user=user, ca_pem=ca_pem, guard=self.guard)

    async def _provision(
        self, couchbase: CouchbaseCluster | Provisioned, observed: Observed, writer: StatusWriter, memory: Memory
    ) -> Provisioned | None:
        if isinstance(couchbase, Provisioned):
            memory.give_up_look()
            return couchbase
        key = Key(observed.namespace, observed.name)
        arm = Arm(couchbase, key, self.visits, memory, writer.save_record)
        return await arm.provision(observed.generation, _rival(couchbase.goal, observed))


def _after(progress: Progress, applied: Applied) -> Progress:
    """Return a pass's progress with how the workload arm ended."""
    return replace(
        progress,
        verdict=applied.verdict,
        workload=workload_state(applied.deployment, progress.observed.pods),
        pin=applied.pin,
        url=service_url(applied.service),
    )


async def _both(first: Awaitable[_A], second: Awaitable[_B]) -> tuple[_A, _B]:
    """Return both results; when one fails, the other is still waited for: a pass leaves no writer behind."""
    results = await asyncio.gather(first, second, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return cast("tuple[_A, _B]", tuple(results))


def _for_probes(couchbase: CouchbaseCluster) -> CouchbaseCluster:
    """Return only what a probe uses, so that two of them differ when probes would."""
    goal = couchbase.goal
    goal = replace(goal, record=None, bucket=replace(goal.bucket, working_set_bytes=0))
    return replace(couchbase, goal=goal, admin=None)


def _rival(goal: CouchbaseGoal, observed: Observed) -> Refuse | None:
    is_ours_to_make = goal.provisioning == "RestAPI"
    own = claims.claim(
        observed.resource,
        bucket=goal.bucket.name,
        user=goal.user if is_ours_to_make else "",
        owns_bucket=is_ours_to_make and goal.bucket.management == "Owned",
        record=goal.record,
    )
    return claims.rival(goal, own, observed.claims)
