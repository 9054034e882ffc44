"""Cluster and bucket configuration documents, as key-value clients and REST get them."""

import json
from typing import Any

from e2e.couchbase_emulator.model.bucket import Bucket
from e2e.couchbase_emulator.model.cluster import Cluster, Node

_BUCKET_CAPABILITIES = ["collections", "durableWrite", "tombstonedUserXAttrs", "dcp", "cbhello", "touch", "cccp",
                        "xdcrCheckpointing", "nodesExt", "xattr"]  # fmt: skip


def services_of(node: Node) -> dict[str, int]:
    """Ports of a node by service name."""
    services = {"mgmt": node.mgmt_port, "kv": node.kv_port}
    if node.mgmt_tls_port is not None and node.kv_tls_port is not None:
        services |= {"mgmtSSL": node.mgmt_tls_port, "kvSSL": node.kv_tls_port}
    return services


def nodes_ext(cluster: Cluster, this_node: Node | None = None) -> list[dict[str, Any]]:
    """The `nodesExt` list."""
    listed = []
    for node in cluster.members:
        entry: dict[str, Any] = {"services": services_of(node), "hostname": node.hostname}
        if node is this_node:
            entry["thisNode"] = True
        if node.alternate is not None:
            external: dict[str, Any] = {"hostname": node.alternate.hostname}
            if node.alternate.ports:
                external["ports"] = node.alternate.ports
            entry["alternateAddresses"] = {"external": external}
        listed.append(entry)
    return listed


def cluster_config(cluster: Cluster, this_node: Node | None = None) -> dict[str, Any]:
    """Configuration without a bucket, also `GET /pools/default/nodeServices`."""
    return {
        "rev": cluster.revision,
        "revEpoch": 1,
        "nodesExt": nodes_ext(cluster, this_node),
        "clusterCapabilitiesVer": [1, 0],
        "clusterCapabilities": {},
        "clusterUUID": cluster.uuid,
        "clusterName": cluster.name,
    }


def vbucket_map(cluster: Cluster, bucket: Bucket) -> dict[str, Any]:
    """The `vBucketServerMap`; the emulator keeps one copy, replicas are shown as absent."""
    members = cluster.members
    replicas = min(bucket.settings.replicas, len(members) - 1)
    positions = {node.index: position for position, node in enumerate(members)}
    return {
        "hashAlgorithm": "CRC",
        "numReplicas": bucket.settings.replicas,
        "serverList": [f"{node.hostname}:{node.kv_port}" for node in members],
        "vBucketMap": [
            [owner, *((owner + step) % len(members) for step in range(1, replicas + 1))]
            + [-1] * (bucket.settings.replicas - replicas)
            for owner in map(positions.__getitem__, bucket.documents.owners)
        ],
    }


def bucket_config(cluster: Cluster, bucket: Bucket, this_node: Node | None = None) -> dict[str, Any]:
    """Terse bucket configuration: `GET /pools/default/b/<bucket>` and key-value `GET_CLUSTER_CONFIG`."""
    path = f"/pools/default/buckets/{bucket.name}"
    return cluster_config(cluster, this_node) | {
        "name": bucket.name,
        "nodeLocator": "vbucket",
        "uuid": bucket.uuid,
        "uri": f"{path}?bucket_uuid={bucket.uuid}",
        "streamingUri": f"/pools/default/bucketsStreaming/{bucket.name}?bucket_uuid={bucket.uuid}",
        "bucketCapabilitiesVer": "",
        "bucketCapabilities": _BUCKET_CAPABILITIES
        + (["rangeScan"] if bucket.settings.bucket_type != "ephemeral" else []),
        "collectionsManifestUid": f"{bucket.manifest.uid:x}",
        "nodes": [
            {"hostname": f"{node.hostname}:{node.mgmt_port}", "ports": {"direct": node.kv_port}}
            for node in cluster.members
        ],
        "vBucketServerMap": vbucket_map(cluster, bucket),
    }


def encoded(config: dict[str, Any]) -> bytes:
    """Configuration as key-value clients get it."""
    return json.dumps(config, separators=(",", ":")).encode()
