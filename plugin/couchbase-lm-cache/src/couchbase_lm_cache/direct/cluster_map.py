"""Which data node owns a document: the bucket's configuration and its vBucket map.

A key belongs to vBucket ``(crc32(key) >> 16) & 0x7fff`` modulo their number, and a table gives the owner
of each (Couchbase's "CRC" locator). Documents about the configuration: ``nodesExt`` holds ports by service
and, under ``alternateAddresses.external``, the addresses for clients outside of the cluster's network.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from couchbase_lm_cache.direct.addresses import Node
from couchbase_lm_cache.direct.wire import ProtocolError

if TYPE_CHECKING:
    from couchbase_lm_cache.direct.addresses import ConnectionAddress

_MAX_PORT = 65535
_MAX_VBUCKETS = 1024


@dataclass(frozen=True)
class ClusterMap:
    """One version of a bucket's map.

    Attributes:
        revision: (epoch, number); a larger one is newer.
        owners: owner of each vBucket; None while it has none (failed over without a replica).
    """

    revision: tuple[int, int]
    owners: tuple[Node | None, ...]

    def vbucket_of(self, key: bytes) -> int:
        """Return the vBucket of a key (without its collection)."""
        return ((zlib.crc32(key) >> 16) & 0x7FFF) % len(self.owners)

    @property
    def nodes(self) -> list[Node]:
        """Return the owners, each once."""
        return sorted({node for node in self.owners if node is not None})


def parse_cluster_map(content: bytes, told_by: Node, address: ConnectionAddress) -> ClusterMap:
    """Read a configuration.

    Args:
        content: JSON from a data node.
        told_by: the node it came from, which it names ``$HOST`` where it does not know its own name.
        address: decides about TLS ports and alternate addresses.

    Raises:
        ProtocolError: it is no configuration of a Couchbase bucket that can be used. The message quotes nothing
            of it: it reaches logs and the status, and a peer may have put anything there.
    """
    try:
        document = json.loads(content)
        servers = document["vBucketServerMap"]
        table = [row[0] for row in servers["vBucketMap"]]
        listed = _listed_nodes(document["nodesExt"], told_by)
        internal = [_find(listed, servers["serverList"], index, told_by) for index in range(len(servers["serverList"]))]
        external = _is_external(listed, told_by, address)
        usable = [
            _node(entry, index, told_by, external=external, tls=address.uses_tls)
            for index, entry in enumerate(internal)
        ]
        revision = (int(document.get("revEpoch", 0)), int(document["rev"]))
        owners = tuple(usable[index] if index >= 0 else None for index in table)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError, RecursionError):
        raise ProtocolError("the bucket's configuration is not understood") from None
    if not 0 < len(owners) <= _MAX_VBUCKETS or servers.get("hashAlgorithm") != "CRC":
        raise ProtocolError(f"the bucket's map has {len(owners)} vBuckets and is not one that is understood")
    return ClusterMap(revision, owners)


def _listed_nodes(listed: list[dict[str, Any]], told_by: Node) -> list[dict[str, Any]]:
    return [{**entry, "hostname": entry.get("hostname", told_by.host).strip("[]")} for entry in listed]


def _find(listed: list[dict[str, Any]], servers: list[str], index: int, told_by: Node) -> dict[str, Any]:
    host, _, port = servers[index].replace("$HOST", told_by.host).rpartition(":")
    for entry in listed:
        if entry["hostname"] == host.strip("[]") and entry["services"].get("kv") == int(port):
            return entry
    raise ProtocolError(f"server {index} of the bucket's map is not among the cluster's nodes")


def _is_external(listed: list[dict[str, Any]], told_by: Node, address: ConnectionAddress) -> bool:
    """Decide between internal and alternate addresses, as the official SDK does."""
    if address.network != "auto":
        return address.network == "external"
    if any(entry["hostname"] == told_by.host for entry in listed):
        return False
    alternates = [entry.get("alternateAddresses", {}).get("external") for entry in listed]
    return bool(alternates) and all(alternates)


def _node(entry: dict[str, Any], index: int, told_by: Node, *, external: bool, tls: bool) -> Node:
    services, host, service = entry["services"], entry["hostname"], "kvSSL" if tls else "kv"
    if external:
        alternate = entry["alternateAddresses"]["external"]
        host, services = alternate["hostname"], alternate.get("ports") or services
    if service not in services:
        raise ProtocolError(f"server {index} of the bucket's map offers no {'encrypted ' if tls else ''}key-value port")
    port = int(services[service])
    if not isinstance(host, str):
        raise ProtocolError(f"server {index} of the bucket's map has a host name that is no text")
    if not 0 < port <= _MAX_PORT:
        raise ProtocolError(f"server {index} of the bucket's map has a key-value port that cannot be")
    return Node(host or told_by.host, port)
