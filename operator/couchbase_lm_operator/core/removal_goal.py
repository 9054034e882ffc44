"""What a deleted resource had at Couchbase, from its spec and status alone: the model may be gone. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from couchbase_lm_operator import names
from couchbase_lm_operator.core import bucket_record, ownership
from couchbase_lm_operator.core.couchbase_state import BucketGoal, CouchbaseGoal

if TYPE_CHECKING:
    from couchbase_lm_operator.api.spec_couchbase import CouchbaseSpec
    from couchbase_lm_operator.core.observed import Manifest


def removal_goal(resource: Manifest, spec: CouchbaseSpec, namespace_uid: str) -> CouchbaseGoal:
    """Return a goal that is good for ``decide_removal`` and for nothing else."""
    metadata = resource["metadata"]
    namespace, name = str(metadata["namespace"]), str(metadata["name"])
    recorded = (resource.get("status") or {}).get("couchbase") or {}
    bucket = BucketGoal(
        name=spec.bucket.name or names.bucket(namespace_uid, name),
        management=spec.bucket.management,
        bucket_type=spec.bucket.type,
        memory_quota_bytes=None,
        working_set_bytes=0,
        replicas=spec.bucket.replicas,
        eviction_policy="",
        max_ttl_seconds=0,
        accept_no_auto_failover=True,
        reclaim_policy=spec.bucket.reclaim_policy,
    )
    return CouchbaseGoal(
        provisioning=spec.resolved_provisioning,
        connection_string=spec.connection_string,
        management_urls=tuple(spec.management_endpoints),
        bucket=bucket,
        scope=str(recorded.get("scope") or spec.scope or names.scope(namespace)),
        collection=str(recorded.get("collection") or spec.collection or names.collection(name)),
        user=(spec.user.name if spec.user else None) or names.user(namespace_uid, namespace, name),
        ownership_mark=ownership.mark(names.cluster_id(namespace_uid), namespace, name),
        secret_name=names.credentials_secret(name),
        record=bucket_record.from_status(recorded),
    )
