"""The record of bucket and user as it stands in ``status.couchbase.bucket``: read and written here. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from couchbase_lm_operator.core.couchbase_state import BucketRecord
from couchbase_lm_operator.core.quantity import format_bytes, parse_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping


def from_status(status: Mapping[str, Any]) -> BucketRecord | None:
    """Return what status remembers, or None when nothing was recorded yet."""
    found = (status.get("couchbase") or {}).get("bucket") or {}
    if not found.get("name") or not found.get("clusterUUID"):
        return None
    quota = found.get("requestedQuota")
    return BucketRecord(
        name=str(found["name"]),
        cluster_uuid=str(found["clusterUUID"]),
        uuid=str(found.get("uuid", "")),
        created=bool(found.get("created", False)),
        requested_quota_bytes=None if quota is None else parse_bytes(quota),
        user_uuid=str(found.get("userUUID", "")),
        removed_by_others_count=int(found.get("removedByOthersCount", 0)),
        user_removed_by_others_count=int(found.get("userRemovedByOthersCount", 0)),
        refused_generation=int(found.get("refusedGeneration", 0)),
    )


def to_status(record: BucketRecord) -> dict[str, Any]:
    """Return the API form; what says nothing is left out."""
    quota_bytes = record.requested_quota_bytes
    fields: dict[str, Any] = {
        "name": record.name,
        "clusterUUID": record.cluster_uuid,
        "uuid": record.uuid,
        "created": record.created,
        "requestedQuota": None if quota_bytes is None else format_bytes(quota_bytes),
        "userUUID": record.user_uuid,
        "removedByOthersCount": record.removed_by_others_count,
        "userRemovedByOthersCount": record.user_removed_by_others_count,
        "refusedGeneration": record.refused_generation,
    }
    return {name: value for name, value in fields.items() if value is False or value}
