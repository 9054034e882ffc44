"""The part of a spec that shapes its pods: what a pinned pod template is kept under. Pure.

Only what a user set counts, not defaults, so that a release that adds a field or changes what it makes of
one leaves running pods alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec

_NOT_OF_THE_POD: dict[str, Any] = {
    "suspend": True,
    "replicas": True,
    "rollout": True,
    "service": True,
    "couchbase": {
        "management_endpoints": True,
        "provisioning": True,
        "admin_secret_ref": True,
        # its name is in the pod, the rest is the bucket's own
        "bucket": {
            "management",
            "type",
            "memory_quota",
            "replicas",
            "eviction_policy",
            "max_ttl",
            "accept_no_auto_failover",
            "reclaim_policy",
        },
        "user": True,
    },
    "cache": {"working_set": {"contexts"}},
}


def pod_fields(spec: LMCacheCouchbaseSpec, config_digest: str) -> dict[str, Any]:
    """Return what users wrote that shapes the pods.

    A ConfigMap's config.json is the user's and counts by its digest; what a hub serves under a branch is
    not: it must not roll pods by itself.
    """
    fields = _without_empty(spec.model_dump(by_alias=True, exclude_defaults=True, exclude=_NOT_OF_THE_POD))
    return {**fields, "configDigest": config_digest} if reads_config_map(spec) else dict(fields)


def reads_config_map(spec: LMCacheCouchbaseSpec) -> bool:
    """Say whether config.json comes from a ConfigMap, not from a hub."""
    return spec.model.config is not None and spec.model.config.config_map_ref is not None


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        cleaned = {key: _without_empty(part) for key, part in value.items()}
        return {key: part for key, part in cleaned.items() if part not in (None, {}, [])}
    return value
