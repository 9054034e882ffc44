"""The bucket's part of provisioning: whose it is, whether it may be created, what it still lacks. Pure.

Nothing that this resource did not create is ever changed: a bucket is ours only by a recorded UUID, by
its own marker scope, by the mark in our own user, or by an intent that status recorded before the bucket
came into being.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.couchbase import bucket_quota, ownership
from couchbase_lm_operator.core.couchbase.provisioning_steps import CreateBucket, EditBucketQuota, Step
from couchbase_lm_operator.core.couchbase_state import BucketRecord, BucketState, CouchbaseGoal, CouchbaseState
from couchbase_lm_operator.core.verdict import Refuse, Wait

if TYPE_CHECKING:
    from couchbase_lm_operator.core.couchbase.bucket_quota import BucketSize

SERVER_SCOPES = frozenset({"_default", "_system"})
"""Scopes that Couchbase itself puts into every bucket."""

REMOVALS_TOLERATED = 1
_TYPE_NAMES = {"membase": "Couchbase", "couchbase": "Couchbase", "ephemeral": "Ephemeral"}


@dataclass(frozen=True)
class BucketPart:
    """What follows for the bucket; ``blocked`` None means that it is ready for scope and user.

    ``record`` must be saved before a step is executed.
    """

    record: BucketRecord | None
    steps: tuple[Step, ...] = ()
    blocked: Wait | Refuse | None = None
    size: BucketSize | None = None


def matching_record(goal: CouchbaseGoal, seen: CouchbaseState) -> BucketRecord | None:
    """Return the record if it tells of this bucket in this cluster; another cluster starts from nothing."""
    record = goal.record
    if record is None or record.name != goal.bucket.name or record.cluster_uuid != seen.cluster_uuid:
        return None
    return record


def decide_bucket(goal: CouchbaseGoal, seen: CouchbaseState, generation: int) -> BucketPart:
    """Return what to do about the bucket of ``goal``."""
    record = matching_record(goal, seen)
    if goal.bucket.management == "Shared":
        return _shared(goal, seen, record)
    if seen.bucket is None:
        return _absent(goal, seen, record, generation)
    owned = owned_record(goal, seen, record)
    if owned is None:
        return BucketPart(record, blocked=_not_ours(seen.bucket))
    return _present(goal, seen, seen.bucket, owned)


def owned_record(goal: CouchbaseGoal, seen: CouchbaseState, record: BucketRecord | None) -> BucketRecord | None:
    """Return the record with the UUID of the bucket seen if that bucket is ours, else None.

    The marker scope outweighs a record that says otherwise: it names this very bucket and was put there by us.
    A record is older when the resource used its own kept bucket as Shared, or when status was restored.
    """
    bucket = seen.bucket
    if bucket is None:
        return None
    if record is not None and record.created and record.uuid == bucket.uuid:
        return record
    knows_uuid = record is not None and bool(record.uuid)
    if is_marked(goal, bucket) or (not knows_uuid and _is_named_by_user(goal, seen, bucket)):
        # Status was lost. The quota seen now counts as applied: it may have been changed since on purpose.
        fresh = record or BucketRecord(bucket.name, seen.cluster_uuid)
        return replace(fresh, uuid=bucket.uuid, created=True, requested_quota_bytes=goal.bucket.memory_quota_bytes)
    if record is not None and not knows_uuid and _is_untouched(bucket, goal):
        return replace(record, uuid=bucket.uuid, created=True)
    return None


def is_marked(goal: CouchbaseGoal, bucket: BucketState) -> bool:
    """Say whether the bucket carries the marker scope of this resource for the bucket's own UUID."""
    return ownership.marker_scope(goal.ownership_mark, bucket.uuid) in bucket.scopes


def size_of(goal: CouchbaseGoal, seen: CouchbaseState) -> BucketSize | None:
    """Return the memory of the bucket as it is, beside what the working set asks for; None where one is not known."""
    working_set_bytes = goal.bucket.working_set_bytes
    if seen.bucket is None or not seen.data_nodes or working_set_bytes is None:
        return None
    nodes = len(seen.data_nodes)
    needed = bucket_quota.needed_per_node_bytes(working_set_bytes, seen.bucket.replicas, nodes)
    return bucket_quota.BucketSize(seen.bucket.quota_per_node_bytes, needed, seen.bucket.replicas, nodes)


def differences(goal: CouchbaseGoal, bucket: BucketState) -> tuple[str, ...]:
    """Return one phrase for each explicit setting that an existing bucket has otherwise.

    They are told, not changed: each can need a rebalance or restart the bucket under its users.
    """
    wish = goal.bucket
    pairs = [
        ("type", wish.bucket_type, _TYPE_NAMES.get(bucket.bucket_type, bucket.bucket_type)),
        ("replicas", wish.replicas, bucket.replicas),
        ("evictionPolicy", wish.eviction_policy, bucket.eviction_policy),
        ("memoryQuota", _mib_or_none(wish.memory_quota_bytes), _mib_or_none(bucket.quota_per_node_bytes)),
        ("maxTTL", wish.max_ttl_seconds, bucket.max_ttl_seconds),
    ]
    return tuple(
        f"{field} is {has}, spec.couchbase.bucket.{field} says {wants}"
        for field, wants, has in pairs
        if wants is not None and has is not None and wants != has
    )


def _shared(goal: CouchbaseGoal, seen: CouchbaseState, record: BucketRecord | None) -> BucketPart:
    bucket = seen.bucket
    if bucket is None:
        return BucketPart(
            record,
            blocked=Refuse(
                Reason.SHARED_BUCKET_MISSING,
                f"spec.couchbase.bucket.management is Shared, but there is no bucket {goal.bucket.name!r}: create it, "
                "correct spec.couchbase.bucket.name, or let the operator create one with management Owned.",
            ),
        )
    used = replace(record or BucketRecord(bucket.name, seen.cluster_uuid), uuid=bucket.uuid)
    if record is not None and record.uuid != bucket.uuid:
        used = replace(used, created=False)
    return BucketPart(used, blocked=_not_ready(bucket), size=size_of(goal, seen))


def _absent(goal: CouchbaseGoal, seen: CouchbaseState, record: BucketRecord | None, generation: int) -> BucketPart:
    if goal.bucket.memory_quota_bytes is None and goal.bucket.working_set_bytes is None:
        # not counted as a removal either: that is for a pass that can make it again
        return BucketPart(record, blocked=_size_unknown(goal.bucket.name))
    had_it = record is not None and record.created and bool(record.uuid)
    if record is not None and had_it:
        if record.removed_by_others_count > REMOVALS_TOLERATED and generation > record.refused_generation:
            record = replace(record, removed_by_others_count=0)
        elif record.removed_by_others_count > REMOVALS_TOLERATED:
            return BucketPart(record, blocked=_removed_again(goal.bucket.name))
        else:
            record = replace(record, removed_by_others_count=record.removed_by_others_count + 1)
            if record.removed_by_others_count > REMOVALS_TOLERATED:
                return BucketPart(
                    replace(record, refused_generation=generation), blocked=_removed_again(goal.bucket.name)
                )
    size = bucket_quota.choose(goal.bucket, seen)
    if isinstance(size, Refuse):
        return BucketPart(record, blocked=size)
    intent = replace(
        record or BucketRecord(goal.bucket.name, seen.cluster_uuid),
        uuid="",
        created=False,
        requested_quota_bytes=goal.bucket.memory_quota_bytes,
    )
    create = CreateBucket(
        goal.bucket.name,
        goal.bucket.bucket_type,
        size.quota_per_node_bytes,
        size.replicas,
        goal.bucket.eviction_policy,
        goal.bucket.max_ttl_seconds,
    )
    wait = Wait(Reason.BUCKET_CREATING, f"Bucket {goal.bucket.name!r} is being created.", 1.0)
    return BucketPart(intent, (create,), wait, size)


def _present(goal: CouchbaseGoal, seen: CouchbaseState, bucket: BucketState, record: BucketRecord) -> BucketPart:
    size = size_of(goal, seen)
    wish = goal.bucket.memory_quota_bytes
    if wish is None or bucket_quota.whole_mib(wish) == bucket.quota_per_node_bytes:
        record = replace(record, requested_quota_bytes=wish)
    elif wish != record.requested_quota_bytes:
        # Recorded only once the bucket shows it: a pass that dies before the edit repeats it.
        refusal = bucket_quota.edit_refusal(wish, bucket.quota_per_node_bytes, seen)
        if refusal is not None:
            return BucketPart(record, blocked=refusal, size=size)
        edit = EditBucketQuota(bucket.name, bucket.uuid, bucket_quota.whole_mib(wish))
        wait = Wait(Reason.BUCKET_WARMING_UP, f"The quota of bucket {bucket.name!r} is being changed.", 1.0)
        return BucketPart(record, (edit,), wait, size)
    return BucketPart(record, blocked=_not_ready(bucket), size=size)


def _is_named_by_user(goal: CouchbaseGoal, seen: CouchbaseState, bucket: BucketState) -> bool:
    mark = ownership.read(seen.user.mark) if seen.user else None
    return mark == ownership.Ownership(goal.ownership_mark, bucket.uuid, owns_bucket=True)


def _is_untouched(bucket: BucketState, goal: CouchbaseGoal) -> bool:
    same_type = _TYPE_NAMES.get(bucket.bucket_type) == goal.bucket.bucket_type
    return same_type and bucket.item_count == 0 and set(bucket.scopes) <= SERVER_SCOPES


def _not_ready(bucket: BucketState) -> Wait | None:
    if bucket.is_ready:
        return None
    return Wait(
        Reason.BUCKET_WARMING_UP,
        f"Bucket {bucket.name!r} exists; not every data node serves it yet.",
        1.0,
    )


def _size_unknown(name: str) -> Wait:
    return Wait(
        Reason.BUCKET_SIZE_UNKNOWN,
        f"There is no bucket {name!r} any more, and its size is not known while the specification cannot be followed: "
        "it is created again once what Ready names is corrected.",
        15.0,
    )


def _not_ours(bucket: BucketState) -> Refuse:
    return Refuse(
        Reason.BUCKET_NOT_OURS,
        f"Bucket {bucket.name!r} exists and was not created by this resource: set spec.couchbase.bucket.management "
        "to Shared to use it as it is, or choose another spec.couchbase.bucket.name.",
    )


def _removed_again(name: str) -> Refuse:
    return Refuse(
        Reason.REMOVED_BY_THIRD_PARTY,
        f"Somebody else removed bucket {name!r} twice, so it is not created a third time: find out who (the Couchbase "
        "Autonomous Operator with buckets.managed true removes buckets it does not know), stop it, then change any "
        "field of spec.",
    )


def _mib_or_none(size_bytes: int | None) -> str | None:
    return None if size_bytes is None else f"{bucket_quota.whole_mib(size_bytes) // bucket_quota.MEBIBYTE}Mi"
