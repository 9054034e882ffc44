"""What to go on repairing at Couchbase while the spec cannot be followed. Pure.

A refused flag, or a model hub that refuses, is no reason to leave engines without the user or the bucket that
somebody removed. Only what was proven before is worked for: as soon as the Couchbase part of the spec is another
one too, nothing is done until the whole spec can be followed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from couchbase_lm_operator.core.checks import refused_user
from couchbase_lm_operator.core.children.held import facts_in_effect
from couchbase_lm_operator.core.couchbase.couchbase_goal import couchbase_goal, wished_contexts
from couchbase_lm_operator.core.progress import goal_digest

if TYPE_CHECKING:
    from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec
    from couchbase_lm_operator.core.couchbase_state import CouchbaseGoal
    from couchbase_lm_operator.core.observed import Observed


def repair_goal(spec: LMCacheCouchbaseSpec, observed: Observed) -> CouchbaseGoal | None:
    """Return the goal that was brought into effect earlier and is still wanted; None when there is none.

    A bucket that has to be made anew gets its size from what was worked out for the pod template in effect. Earlier
    operators did not record that, and status does not tell it: then all but such a bucket is repaired.
    """
    if refused_user(spec, observed) is not None:
        return None
    per_context_bytes = facts_in_effect(observed.resource, observed.children).get("workingSetBytesPerContext")
    working_set_bytes = None if per_context_bytes is None else wished_contexts(spec) * int(per_context_bytes)
    goal = couchbase_goal(spec, observed, working_set_bytes)
    proven = (observed.status.get("couchbase") or {}).get("provisionedDigest")
    return goal if goal_digest(goal) == proven else None
