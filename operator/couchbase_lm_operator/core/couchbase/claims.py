"""Two resources never own the same bucket or user: who has it keeps it, else the older claim wins. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.observed import Claim
from couchbase_lm_operator.core.verdict import Refuse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from couchbase_lm_operator.core.couchbase_state import BucketRecord, CouchbaseGoal
    from couchbase_lm_operator.core.observed import Manifest


def claim(resource: Manifest, *, bucket: str, user: str, owns_bucket: bool, record: BucketRecord | None) -> Claim:
    """Return the claim of ``resource`` on a bucket and a user (none: ""), with what ``record`` tells of them."""
    metadata = resource["metadata"]
    return Claim(
        namespace=str(metadata["namespace"]),
        name=str(metadata["name"]),
        uid=str(metadata["uid"]),
        created=str(metadata["creationTimestamp"]),
        bucket=bucket,
        user=user,
        owns_bucket=owns_bucket,
        holds_bucket=record is not None and record.holds_bucket(bucket),
        holds_user=record is not None and record.holds_user(user),
    )


def rival(goal: CouchbaseGoal, own: Claim, others: Iterable[Claim]) -> Refuse | None:
    """Return the refusal that names the resource with the better claim on the same thing, or None.

    ``own`` is this resource's claim; ``others`` may contain it. Claims on clusters that cannot be the
    same are no rivals: the caller leaves them out. Having it decides, then creation time, then the UID:
    resources of one file are often created in the same second, so time alone would be a coin toss that can
    turn against the one that serves already.
    """
    rivals = sorted((other for other in others if other.uid != own.uid), key=lambda claim: (claim.created, claim.uid))
    for other in rivals:
        is_older = (other.created, other.uid) < (own.created, own.uid)
        if own.user and other.user == own.user and _is_better(other.holds_user, own.holds_user, is_older):
            return _refusal(other, "user", goal.user, "spec.couchbase.user.name")
        is_same_bucket = own.owns_bucket and other.owns_bucket and other.bucket == own.bucket
        if is_same_bucket and _is_better(other.holds_bucket, own.holds_bucket, is_older):
            return _refusal(
                other,
                "bucket",
                goal.bucket.name,
                "spec.couchbase.bucket.name, or set spec.couchbase.bucket.management to Shared",
            )
    return None


def _is_better(holds: bool, own_holds: bool, is_older: bool) -> bool:
    return is_older if holds == own_holds else holds


def _refusal(other: Claim, what: str, name: str, remedy: str) -> Refuse:
    return Refuse(
        Reason.CLAIMED_BY_OTHER,
        f"Couchbase {what} {name!r} is already claimed by LMCacheCouchbase {other.namespace}/{other.name}: "
        f"choose another {remedy}.",
    )
