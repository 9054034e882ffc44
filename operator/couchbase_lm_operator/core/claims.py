"""Two resources never own the same bucket or user: the older claim wins. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.verdict import Refuse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from couchbase_lm_operator.core.couchbase_state import CouchbaseGoal
    from couchbase_lm_operator.core.observed import Claim


def rival(goal: CouchbaseGoal, own: Claim, others: Iterable[Claim]) -> Refuse | None:
    """Return the refusal that names the older resource with the same claim, or None.

    ``own`` is this resource's claim; ``others`` may contain it. Claims on clusters that cannot be the
    same are no rivals: the caller leaves them out. Creation time decides, then the UID.
    """
    older = [other for other in others if other.uid != own.uid and (other.created, other.uid) < (own.created, own.uid)]
    for other in sorted(older, key=lambda claim: (claim.created, claim.uid)):
        if own.user and other.user == own.user:
            return _refusal(other, "user", goal.user, "spec.couchbase.user.name")
        if own.owns_bucket and other.owns_bucket and other.bucket == own.bucket:
            return _refusal(
                other,
                "bucket",
                goal.bucket.name,
                "spec.couchbase.bucket.name, or set spec.couchbase.bucket.management to Shared",
            )
    return None


def _refusal(other: Claim, what: str, name: str, remedy: str) -> Refuse:
    return Refuse(
        Reason.CLAIMED_BY_OTHER,
        f"Couchbase {what} {name!r} is already claimed by LMCacheCouchbase {other.namespace}/{other.name}: "
        f"choose another {remedy}.",
    )
