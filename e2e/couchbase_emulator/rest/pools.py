"""`/pools` and what hangs directly below it: cluster identity, nodes, memory, addresses of services."""

from typing import Any

from aiohttp import web

from e2e.couchbase_emulator.model.bucket import MIB
from e2e.couchbase_emulator.model.cluster import Cluster, Node
from e2e.couchbase_emulator.model.roles import Target
from e2e.couchbase_emulator.rest.http import Call, RestError, Route, json_response, needs
from e2e.couchbase_emulator.topology import cluster_config

MAX_BUCKETS = 30


def implementation_version(cluster: Cluster) -> str:
    """Version with build and edition, such as `8.0.2-0000-enterprise`."""
    return f"{cluster.options.version}-0000-{cluster.options.edition}"


async def pools(call: Call) -> web.Response:
    """Identity of the cluster; before setup there is no pool and no uuid."""
    cluster = call.cluster
    ready = cluster.initialised
    uri = f"/pools/default?uuid={cluster.uuid}"
    pool = {"name": "default", "uri": uri, "streamingUri": f"/poolsStreaming/default?uuid={cluster.uuid}"}
    return json_response(
        {
            "isAdminCreds": True,
            "isROAdminCreds": False,
            "isEnterprise": cluster.options.is_enterprise,
            "prod": "server",
            "prodName": "Couchbase Server",
            "configProfile": "default",
            "allowedServices": ["kv"],
            "isDeveloperPreview": False,
            "pools": [pool] if ready else [],
            "settings": {} if ready else [],
            "uuid": cluster.uuid if ready else [],
            "implementationVersion": implementation_version(cluster),
            "componentsVersion": {"ns_server": implementation_version(cluster)},
        }
    )


async def pool_default(call: Call) -> web.Response:
    """State of the cluster."""
    cluster = call.cluster
    if not cluster.initialised:
        raise RestError(404, "unknown pool")
    return json_response(
        {
            "name": "default",
            "nodes": [node_json(cluster, node, this=node is call.node) for node in cluster.members],
            "buckets": {"uri": f"/pools/default/buckets?uuid={cluster.uuid}"},
            "bucketNames": [
                {"bucketName": bucket.name, "uuid": bucket.uuid}
                for bucket in cluster.buckets.values()
                if call.allowed((Target(bucket.name), "settings"), "read")
            ],
            "maxBucketCount": MAX_BUCKETS,
            "maxCollectionCount": 1200,
            "maxScopeCount": 1200,
            "minReplicasCount": 0,
            "rebalanceStatus": "none",
            "balanced": True,
            "clusterName": cluster.name,
            "clusterEncryptionLevel": "control",
            "memoryQuota": cluster.memory_quota_mib,
            "storageTotals": storage_totals(cluster),
            "nodeServicesUri": "/pools/default/nodeServices",
            "checkPermissionsURI": "/pools/default/checkPermissions",
        }
    )


def storage_totals(cluster: Cluster) -> dict[str, Any]:
    """Memory and disk of the cluster in bytes."""
    nodes = len(cluster.members)
    per_node = cluster.memory_quota_mib * MIB
    used_per_node = cluster.assigned_mib() * MIB
    used = sum(sum(bucket.documents.used_bytes) for bucket in cluster.buckets.values())
    total = cluster.options.ram_total_mib * MIB * nodes
    disk = 1 << 40
    return {
        "ram": {
            "total": total,
            "quotaTotal": per_node * nodes,
            "quotaUsed": used_per_node * nodes,
            "used": used,
            "usedByData": used,
            "quotaUsedPerNode": used_per_node,
            "quotaTotalPerNode": per_node,
        },
        "hdd": {"total": disk, "quotaTotal": disk, "used": 0, "usedByData": 0, "free": disk},
    }


def node_json(cluster: Cluster, node: Node, *, this: bool = False, status: str | None = None) -> dict[str, Any]:
    """A node as listed in pools and buckets; `status` is the bucket's view when given."""
    ports = {"direct": node.kv_port, "distTCP": 21100, "distTLS": 21150}
    if node.mgmt_tls_port is not None:
        ports["httpsMgmt"] = node.mgmt_tls_port
    if not node.alive:
        status = "unhealthy"
    body: dict[str, Any] = {
        "hostname": f"{node.hostname}:{node.mgmt_port}",
        "otpNode": node.otp_name,
        "nodeUUID": f"{node.index:032x}",
        "status": status or "healthy",
        "clusterMembership": "active",
        "recoveryType": "none",
        "version": implementation_version(cluster),
        "clusterCompatibility": _compatibility(cluster),
        "os": "x86_64-pc-linux-gnu",
        "services": ["kv"],
        "ports": ports,
        "memoryTotal": cluster.options.ram_total_mib * MIB,
        "memoryFree": cluster.options.ram_total_mib * MIB // 2,
        "mcdMemoryReserved": cluster.options.ram_total_mib * 4 // 5,
        "mcdMemoryAllocated": cluster.options.ram_total_mib * 4 // 5,
        "uptime": "60",
    }
    if this:
        body["thisNode"] = True
    return body


def _compatibility(cluster: Cluster) -> int:
    major, minor = cluster.options.major_minor
    return major * 0x10000 + minor


async def this_node(call: Call) -> web.Response:
    """The node that is asked."""
    return json_response(node_json(call.cluster, call.node, this=True))


async def node_services(call: Call) -> web.Response:
    """Addresses and ports of every node, alternate ones too."""
    return json_response(cluster_config(call.cluster, call.node))


ROUTES = [
    Route("GET", "/pools", pools, needs("read", "pools")),
    Route("GET", "/pools/default", pool_default, needs("read", "pools")),
    Route("GET", "/pools/nodes", pool_default, needs("read", "pools")),
    Route("GET", "/nodes/self", this_node, needs("read", "nodes")),
    Route("GET", "/pools/default/nodeServices", node_services, needs("read", "pools")),
    Route("GET", "/pools/default/terseClusterInfo", node_services, needs("read", "pools")),
]
