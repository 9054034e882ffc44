"""Which cache the running pods use, so that probes can look at it whether or not the spec is followed. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from couchbase_lm_operator.core.couchbase.couchbase_goal import couchbase_goal
from couchbase_lm_operator.core.observed import Missing, SecretValue, Unread
from couchbase_lm_operator.core.progress import CacheHealth, goal_digest
from couchbase_lm_operator.core.reference_verdict import reference_verdict

if TYPE_CHECKING:
    from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec
    from couchbase_lm_operator.core.couchbase_state import CouchbaseGoal
    from couchbase_lm_operator.core.observed import Observed


def probe_goal(spec: LMCacheCouchbaseSpec | None, observed: Observed) -> CouchbaseGoal | CacheHealth | None:
    """Return what was provisioned, when the spec still names it and its Secret is there; else why it is unknown.

    ``spec`` is None when it cannot be used. None is returned while nothing is provisioned.
    """
    remembered = (observed.status.get("couchbase") or {}).get("provisionedDigest")
    if not remembered:
        return None
    if spec is None:
        return _unknown("the specification cannot be used.")
    for needed in (observed.ca_pem, observed.user_credentials):
        if isinstance(needed, Missing | Unread):
            return _unknown(reference_verdict(needed).message)
    goal = couchbase_goal(spec, observed, working_set_bytes=0)
    if not isinstance(observed.user_credentials, SecretValue) or goal_digest(goal) != remembered:
        return _unknown("the specification names another cache than the pods use.")
    return goal


def _unknown(why: str) -> CacheHealth:
    return CacheHealth(is_healthy=None, detail=f"The cache that the pods use is not looked at: {why}")
