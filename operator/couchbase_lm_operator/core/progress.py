"""What one pass found and did: the only input of ``core.status``. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from couchbase_lm_operator.core.children.children import digest
from couchbase_lm_operator.core.couchbase.provisioning import Stage
from couchbase_lm_operator.core.sizing import sizing_verdict
from couchbase_lm_operator.core.verdict import Proceed, Refuse

if TYPE_CHECKING:
    from couchbase_lm_operator.core.children.readiness import WorkloadState
    from couchbase_lm_operator.core.children.template_pin import Pin
    from couchbase_lm_operator.core.couchbase.provisioning import CouchbaseFacts
    from couchbase_lm_operator.core.couchbase_state import BucketRecord, CouchbaseGoal
    from couchbase_lm_operator.core.observed import Observed
    from couchbase_lm_operator.core.plan import Plan
    from couchbase_lm_operator.core.sizing.sizing_verdict import Observation, Prediction
    from couchbase_lm_operator.core.verdict import Verdict


@dataclass(frozen=True)
class Provisioned:
    """How far the provisioning arm came: ``verdict`` belongs to ``stage``, earlier stages are done."""

    stage: Stage
    verdict: Verdict
    record: BucketRecord | None
    facts: CouchbaseFacts

    @property
    def is_done(self) -> bool:
        """Say whether everything was proven, in this pass or in an earlier one that asked the same."""
        return self.stage is Stage.DONE and isinstance(self.verdict, Proceed)


@dataclass(frozen=True)
class CacheHealth:
    """The last read-only probe as the engines' user; ``is_healthy`` is None when there can be none."""

    is_healthy: bool | None
    detail: str


HEALTHY = CacheHealth(is_healthy=True, detail="The engines' user reaches its collection on every data node.")


@dataclass(frozen=True)
class Progress:
    """One pass. ``plan`` is None when the checks refused or must wait; ``pin`` when nothing was rendered.

    ``verdict`` is that of checks and workload arm together. ``provisioned`` is None when the arm did not run,
    and while nothing has come back yet of what it asks.
    ``goal`` is what it worked for, or was to: that of the plan, or without one what is repaired meanwhile.
    ``url`` is that of the Service as it is, "" when there is none of ours, None when it was not looked at.
    """

    observed: Observed
    is_suspended: bool
    plan: Plan | None
    verdict: Verdict
    provisioned: Provisioned | None
    workload: WorkloadState
    pin: Pin | None
    cache: CacheHealth | None
    url: str | None = None
    goal: CouchbaseGoal | None = None

    @property
    def goal_digest(self) -> str:
        """Return the hash of the Couchbase part in effect; "" without a goal."""
        return goal_digest(self.goal) if self.goal else ""

    @property
    def is_provisioned(self) -> bool:
        """Say whether this Couchbase part was brought into effect, in this pass or an earlier one."""
        if self.provisioned is not None and self.provisioned.is_done:
            return True
        remembered = (self.observed.status.get("couchbase") or {}).get("provisionedDigest", "")
        return bool(self.goal_digest) and remembered == self.goal_digest

    @property
    def prediction(self) -> Prediction | None:
        """Return what was predicted for the pod template in effect."""
        return sizing_verdict.prediction(self.pin.facts) if self.pin else None

    @property
    def observation(self) -> Observation | None:
        """Return what is known, after this pass, of what pods of the template in effect really store."""
        predicted = self.prediction
        if self.pin is None or predicted is None:
            return None
        return sizing_verdict.observed(self.observed.status, self.observed.readings, self.pin.revision, predicted)

    @property
    def awaits_observation(self) -> bool:
        """Say whether pods will have something to tell that is not known yet."""
        readings = self.observed.readings
        has_tellers = self.workload.ready_replicas > 0 and (readings is None or readings.asked > 0)
        return self.prediction is not None and has_tellers and self.observation is None

    @property
    def refusal(self) -> Refuse | None:
        """Return what only a person can change and what keeps this generation from taking effect."""
        if isinstance(self.verdict, Refuse):
            return self.verdict
        if self.provisioned and isinstance(self.provisioned.verdict, Refuse) and not self.is_provisioned:
            return self.provisioned.verdict
        if self.workload.is_stuck:
            return Refuse(self.workload.reason, self.workload.message)
        return None


def goal_digest(goal: CouchbaseGoal) -> str:
    """Return the hash of what the resource wants of Couchbase.

    What was worked out from the model (working set) stays out: it shapes a bucket only when it is created.
    """
    bucket = goal.bucket
    return digest(
        [
            goal.provisioning,
            goal.connection_string,
            list(goal.management_urls),
            [bucket.name, bucket.management, bucket.bucket_type, bucket.memory_quota_bytes, bucket.replicas],
            [bucket.eviction_policy, bucket.max_ttl_seconds],
            [goal.scope, goal.collection, goal.user, goal.secret_name],
        ]
    )
