"""What the API server would refuse of a resource by the CRD's rules, told without one.

The rules are CEL in the models of ``api``; here each has its counterpart under the same sentence. A test holds
that no rule is without one. Rules about changes need the resource as it was, so they are left to the cluster.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_MAX_NAME_LENGTH = 63
_EPHEMERAL_POLICIES = frozenset({"nruEviction", "noEviction"})

NAME_RULE = "metadata.name becomes the name of a Service: at most 63 of a-z, 0-9 and -, starting with a letter"


def refusals(name: str, spec: LMCacheCouchbaseSpec) -> list[str]:
    """Return one sentence for each rule that the resource breaks."""
    is_named = len(name) <= _MAX_NAME_LENGTH and _NAME.fullmatch(name)
    broken = [f"{field}: {told}" for told, (field, holds) in RULES.items() if not holds(spec)]
    return [*([] if is_named else [NAME_RULE]), *broken, *_duplicates(spec)]


def _is_external_complete(spec: LMCacheCouchbaseSpec) -> bool:
    couchbase = spec.couchbase
    parts = (couchbase.credentials_secret_ref, couchbase.bucket.name, couchbase.scope, couchbase.collection)
    return couchbase.resolved_provisioning != "External" or None not in parts


def _has_one_ca_at_most(spec: LMCacheCouchbaseSpec) -> bool:
    tls = spec.couchbase.tls
    return tls is None or tls.ca_secret_ref is None or tls.ca_config_map_ref is None


def _fits_eviction(spec: LMCacheCouchbaseSpec) -> bool:
    bucket = spec.couchbase.bucket
    is_ephemeral = bucket.type == "Ephemeral"
    return bucket.eviction_policy is None or is_ephemeral == (bucket.eviction_policy in _EPHEMERAL_POLICIES)


def _has_config_for_path(spec: LMCacheCouchbaseSpec) -> bool:
    has_map = spec.model.config is not None and spec.model.config.config_map_ref is not None
    return has_map or not spec.model.id.startswith("/")


def _has_one_source_at_most(spec: LMCacheCouchbaseSpec) -> bool:
    config = spec.model.config
    return config is None or config.hub is None or config.config_map_ref is None


def _has_one_place_at_most(spec: LMCacheCouchbaseSpec) -> bool:
    weights = spec.model.weights
    return weights is None or weights.empty_dir is None or weights.pvc is None


def _is_shared(spec: LMCacheCouchbaseSpec) -> bool:
    return spec.couchbase.bucket.management == "Shared"


def _is_rest_api(spec: LMCacheCouchbaseSpec) -> bool:
    return spec.couchbase.resolved_provisioning == "RestAPI"


RULES: dict[str, tuple[str, Callable[[LMCacheCouchbaseSpec], bool]]] = {
    "adminSecretRef is required with provisioning RestAPI": (
        "spec.couchbase",
        lambda spec: not _is_rest_api(spec) or spec.couchbase.admin_secret_ref is not None,
    ),
    "without an admin Secret (provisioning External) credentialsSecretRef, bucket.name, scope and collection are "
    "required": ("spec.couchbase", _is_external_complete),
    "credentialsSecretRef is for provisioning External; with RestAPI the operator creates the user": (
        "spec.couchbase",
        lambda spec: not _is_rest_api(spec) or spec.couchbase.credentials_secret_ref is None,
    ),
    "set at most one of caSecretRef and caConfigMapRef": ("spec.couchbase.tls", _has_one_ca_at_most),
    "bucket.name is required with management Shared": (
        "spec.couchbase.bucket",
        lambda spec: not _is_shared(spec) or spec.couchbase.bucket.name is not None,
    ),
    "reclaimPolicy Delete needs management Owned: a shared bucket is never deleted": (
        "spec.couchbase.bucket",
        lambda spec: not _is_shared(spec) or spec.couchbase.bucket.reclaim_policy != "Delete",
    ),
    "evictionPolicy is nruEviction or noEviction for Ephemeral, valueOnly or fullEviction for Couchbase": (
        "spec.couchbase.bucket",
        _fits_eviction,
    ),
    "id is a path inside the pod: config.configMapRef must name the ConfigMap with its config.json": (
        "spec.model",
        _has_config_for_path,
    ),
    "id is a path inside the pod, which has no revision": (
        "spec.model",
        lambda spec: not spec.model.id.startswith("/") or spec.model.revision is None,
    ),
    "set at most one of hub and configMapRef": ("spec.model.config", _has_one_source_at_most),
    "set at most one of emptyDir and pvc": ("spec.model.weights", _has_one_place_at_most),
}


def _duplicates(spec: LMCacheCouchbaseSpec) -> Iterator[str]:
    """Yield what stands twice in lists whose entries the API server tells apart by name, or by themselves."""
    template = spec.pod_template
    lists = {
        "spec.couchbase.managementEndpoints": spec.couchbase.management_endpoints,
        "spec.engine.env": [str(each.get("name")) for each in spec.engine.env],
        "spec.cache.env": [str(each.get("name")) for each in spec.cache.env],
        "spec.podTemplate.imagePullSecrets": [str(each.get("name")) for each in template.image_pull_secrets],
        "spec.podTemplate.volumes": [str(each.get("name")) for each in template.volumes],
    }
    for field, entries in lists.items():
        for entry in sorted({each for each in entries if entries.count(each) > 1}):
            yield f"{field} has {entry!r} more than once"
