"""What a resource wants at Couchbase: names, bucket, user. Pure.

Built without the model, so that a resource whose model cannot be sized any more is still cleaned up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from couchbase_lm_operator import names
from couchbase_lm_operator.core.couchbase import bucket_record, ownership
from couchbase_lm_operator.core.couchbase_state import BucketGoal, CouchbaseGoal
from couchbase_lm_operator.core.quantity import parse_bytes, parse_seconds

if TYPE_CHECKING:
    from couchbase_lm_operator.api.spec_couchbase import BucketSpec
    from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec
    from couchbase_lm_operator.core.observed import Observed

_DEFAULT_CONTEXTS = 100
_DEFAULT_EVICTION = {"Ephemeral": "nruEviction", "Couchbase": "fullEviction"}


def couchbase_goal(spec: LMCacheCouchbaseSpec, observed: Observed, working_set_bytes: int | None) -> CouchbaseGoal:
    """Return the goal of the provisioning arm.

    ``working_set_bytes`` is one copy of the wished contexts, None where that is not known and 0 where no bucket is
    to be made; it only matters for the quota of a bucket that does not exist yet.
    """
    couchbase = spec.couchbase
    uid, namespace, name = observed.namespace_uid, observed.namespace, observed.name
    provisioning = couchbase.resolved_provisioning
    user = couchbase.user.name if couchbase.user is not None else None
    secret = couchbase.credentials_secret_ref
    is_external = provisioning == "External"
    return CouchbaseGoal(
        provisioning=provisioning,
        connection_string=couchbase.connection_string,
        management_urls=tuple(url.rstrip("/") for url in couchbase.management_endpoints),
        bucket=_bucket(couchbase.bucket, uid, name, working_set_bytes),
        scope=couchbase.scope or names.scope(namespace),
        collection=couchbase.collection or names.collection(spec.cache.share_group or name),
        # an External user is named by its Secret, not by us
        user=(observed_user(observed) if is_external else None) or user or names.user(uid, namespace, name),
        ownership_mark=ownership.mark(names.cluster_id(uid), namespace, name),
        secret_name=secret.name if is_external and secret is not None else names.credentials_secret(name),
        record=bucket_record.from_status(observed.status.get("couchbase") or {}),
    )


def wished_contexts(spec: LMCacheCouchbaseSpec) -> int:
    """Return how many contexts the bucket is to hold."""
    return spec.cache.working_set.contexts if spec.cache.working_set else _DEFAULT_CONTEXTS


def observed_user(observed: Observed) -> str | None:
    """Return the user name in the Secret that the pods mount, or None when it was not read."""
    credentials = observed.user_credentials
    values = getattr(credentials, "values", None)
    return values.get("username") if isinstance(values, dict) else None


def _bucket(bucket: BucketSpec, namespace_uid: str, name: str, working_set_bytes: int | None) -> BucketGoal:
    return BucketGoal(
        name=bucket.name or names.bucket(namespace_uid, name),
        management=bucket.management,
        bucket_type=bucket.type,
        memory_quota_bytes=parse_bytes(bucket.memory_quota) if bucket.memory_quota else None,
        working_set_bytes=working_set_bytes,
        replicas=bucket.replicas,
        eviction_policy=bucket.eviction_policy or _DEFAULT_EVICTION[bucket.type],
        max_ttl_seconds=parse_seconds(bucket.max_ttl) if bucket.max_ttl else 0,
        accept_no_auto_failover=bucket.accept_no_auto_failover,
        reclaim_policy=bucket.reclaim_policy,
    )
