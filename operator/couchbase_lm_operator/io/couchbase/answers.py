"""Answers of the management API taken apart into our own records. Pure; raises only UnexpectedAnswerError.

Every field is checked for its type: what comes from a foreign server may be anything.
"""

from __future__ import annotations

from typing import Any

from couchbase_lm_operator.core.couchbase_state import BucketState, NodeState, UserState
from couchbase_lm_operator.io.couchbase.node_services import MAX_NODES, NodeAddresses


class UnexpectedAnswerError(Exception):
    """The answer lacks what a Couchbase server always sends; ``what`` names the request."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


def nodes(pool: dict[str, Any], addresses: tuple[NodeAddresses, ...]) -> tuple[NodeState, ...]:
    """Return the active nodes of ``GET /pools/default``, with the data addresses of ``nodeServices``.

    Of too many nodes, one more than ``MAX_NODES``: enough for the login to be refused.
    """
    listed = pool.get("nodes")
    if not isinstance(listed, list):
        raise UnexpectedAnswerError("the list of nodes")
    active = [node for node in listed if isinstance(node, dict) and node.get("clusterMembership", "active") == "active"]
    return tuple(_node(node, addresses) for node in active[: MAX_NODES + 1])


def _node(node: dict[str, Any], addresses: tuple[NodeAddresses, ...]) -> NodeState:
    hostname = str(node.get("hostname", ""))
    services = node.get("services")
    host, _, port = hostname.rpartition(":")
    found = next((one for one in addresses if (one.host, str(one.management_port)) == (host, port)), None)
    if found is None and len(addresses) == 1:
        found = addresses[0]
    kv = found.kv if found else None
    return NodeState(
        hostname=hostname,
        status=str(node.get("status", "")),
        has_data_service=isinstance(services, list) and "kv" in services,
        version=str(node.get("version", "")),
        kv_host=kv.host if kv else "",
        kv_port=kv.port if kv else 0,
    )


def ram_quota_per_node_bytes(pool: dict[str, Any]) -> tuple[int, int]:
    """Return total and used memory quota of the data service per node."""
    ram = _dict(_dict(pool.get("storageTotals")).get("ram"))
    return _int(ram, "quotaTotalPerNode", "memory quotas"), _int(ram, "quotaUsedPerNode", "memory quotas")


def bucket(content: Any, scopes: dict[str, frozenset[str]]) -> BucketState:
    """Return one bucket from ``GET /pools/default/buckets/<b>``."""
    body = _dict(content)
    max_ttl = body.get("maxTTL")
    statuses = [str(_dict(node).get("status", "")) for node in _list(body.get("nodes"))]
    return BucketState(
        name=_str(body, "name", "the bucket"),
        uuid=_str(body, "uuid", "the bucket"),
        bucket_type=_str(body, "bucketType", "the bucket"),
        quota_per_node_bytes=_int(_dict(body.get("quota")), "rawRAM", "the bucket's quota"),
        replicas=_int(body, "replicaNumber", "the bucket"),
        eviction_policy=str(body.get("evictionPolicy", "")),
        max_ttl_seconds=max_ttl if isinstance(max_ttl, int) else None,
        node_statuses=tuple(statuses),
        item_count=_int(_dict(body.get("basicStats")), "itemCount", "the bucket's statistics"),
        scopes=scopes,
    )


def scopes(content: Any) -> dict[str, frozenset[str]]:
    """Return collection names by scope from a collections manifest."""
    return {
        _str(scope, "name", "the manifest"): frozenset(
            _str(_dict(collection), "name", "the manifest") for collection in _list(scope.get("collections"))
        )
        for scope in map(_dict, _list(_dict(content).get("scopes")))
    }


def manifest_uid(content: Any) -> str:
    """Return the uid of a collections manifest, hexadecimal as it is sent."""
    return _str(_dict(content), "uid", "the manifest")


def user(content: Any, name: str) -> UserState:
    """Return one user from ``GET /settings/rbac/users/local/<id>``."""
    body = _dict(content)
    _str(body, "id", "the user")
    roles = frozenset(_role(_dict(role)) for role in _list(body.get("roles")))
    return UserState(name=name, mark=str(body.get("name", "")), uuid=str(body.get("uuid", "")), roles=roles)


def auto_failover(content: Any) -> tuple[bool, bool]:
    """Return whether automatic failover is on, and whether it takes ephemeral buckets without replicas."""
    body = _dict(content)
    return body.get("enabled") is True, body.get("allowFailoverEphemeralNoReplicas") is True


def _role(role: dict[str, Any]) -> str:
    name = str(role.get("role", ""))
    if "bucket_name" not in role:
        return name
    scope, collection = role.get("scope_name"), role.get("collection_name")
    parts = [str(role["bucket_name"])]
    # A missing scope or collection is written * or left out, by version; both mean the whole level above.
    if scope not in {None, "", "*"}:
        parts.append(str(scope))
        if collection not in {None, "", "*"}:
            parts.append(str(collection))
    return f"{name}[{':'.join(parts)}]"


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _str(body: dict[str, Any], key: str, what: str) -> str:
    value = body.get(key)
    if not isinstance(value, str) or not value:
        raise UnexpectedAnswerError(what)
    return value


def _int(body: dict[str, Any], key: str, what: str) -> int:
    value = body.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise UnexpectedAnswerError(what)
    return value
