"""Paths of the management API; every name in them is percent-encoded. Pure."""

from __future__ import annotations

from urllib.parse import quote

POOLS = "/pools"
POOL = "/pools/default"
NODE_SERVICES = "/pools/default/nodeServices"
BUCKETS = "/pools/default/buckets"
AUTO_FAILOVER = "/settings/autoFailover"
CHECK_PERMISSIONS = "/pools/default/checkPermissions"


def bucket(name: str, uuid: str = "") -> str:
    """Return the path of a bucket; with ``uuid`` the server answers 404 when another one has the name."""
    return f"{BUCKETS}/{_part(name)}{_guard(uuid)}"


def bucket_without_map(name: str) -> str:
    """Return the path that reads a bucket without its large vBucket map."""
    return f"{BUCKETS}/{_part(name)}?skipMap=true"


def scopes(bucket_name: str, bucket_uuid: str = "") -> str:
    """Return the path of a bucket's collections manifest."""
    return f"{BUCKETS}/{_part(bucket_name)}/scopes{_guard(bucket_uuid)}"


def collections(bucket_name: str, scope: str, bucket_uuid: str) -> str:
    """Return the path of a scope's collections."""
    return f"{BUCKETS}/{_part(bucket_name)}/scopes/{_part(scope)}/collections{_guard(bucket_uuid)}"


def ensure_manifest(bucket_name: str, manifest_uid: str, bucket_uuid: str) -> str:
    """Return the path that waits until every data node knows a manifest."""
    return f"{BUCKETS}/{_part(bucket_name)}/scopes/@ensureManifest/{_part(manifest_uid)}{_guard(bucket_uuid)}"


def local_user(name: str) -> str:
    """Return the path of a local user."""
    return f"/settings/rbac/users/local/{_part(name)}"


def _part(text: str) -> str:
    return quote(text, safe="")


def _guard(uuid: str) -> str:
    return f"?bucket_uuid={_part(uuid)}" if uuid else ""
