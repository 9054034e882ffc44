"""The record of what we made at Couchbase, to and from ``status.couchbase.bucket``. Pure."""

from __future__ import annotations

from typing import Any

from couchbase_lm_operator.core.couchbase_state import BucketRecord
from couchbase_lm_operator.core.quantity import format_bytes, parse_bytes


def to_status(record: BucketRecord) -> dict[str, Any]:
    """Return ``status.couchbase.bucket`` that keeps ``record``."""
    status: dict[str, Any] = {
        "name": record.name,
        "clusterUUID": record.cluster_uuid,
        "created": record.created,
        "removedByOthersCount": record.removed_by_others_count,
        "userRemovedByOthersCount": record.user_removed_by_others_count,
        "refusedGeneration": record.refused_generation,
        "uuid": record.uuid,
        "user": record.user,
        "userUUID": record.user_uuid,
    }
    if record.requested_quota_bytes is not None:
        status["requestedQuota"] = format_bytes(record.requested_quota_bytes)
    return status


def from_status(couchbase: dict[str, Any]) -> BucketRecord | None:
    """Return the record in ``status.couchbase``, or None when there is none; raises nothing."""
    bucket = couchbase.get("bucket")
    if not isinstance(bucket, dict) or not bucket.get("name") or not bucket.get("clusterUUID"):
        return None
    quota = bucket.get("requestedQuota")
    return BucketRecord(
        name=str(bucket["name"]),
        cluster_uuid=str(bucket["clusterUUID"]),
        uuid=str(bucket.get("uuid") or ""),
        created=bucket.get("created") is True,
        requested_quota_bytes=parse_bytes(quota) if isinstance(quota, str) else None,
        user=str(bucket.get("user") or ""),
        user_uuid=str(bucket.get("userUUID") or ""),
        removed_by_others_count=int(bucket.get("removedByOthersCount") or 0),
        user_removed_by_others_count=int(bucket.get("userRemovedByOthersCount") or 0),
        refused_generation=int(bucket.get("refusedGeneration") or 0),
    )
