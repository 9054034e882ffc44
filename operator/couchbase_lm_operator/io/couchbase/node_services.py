"""Data nodes and their ports from a cluster's ``nodesExt`` list. Pure.

The list is the same in ``GET /pools/default/nodeServices`` and in the configuration that the data protocol
hands out. The connection string's ``network`` chooses between a node's own address and its external one, as
in the SDKs: ``auto`` takes the network in which one of the hosts of the connection string is listed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from couchbase_lm_operator.core.couchbase.connection_string import Address, ConnectionString

MAX_NODES = 128
"""More nodes than any cluster has: what lists more would only keep the operator busy."""


@dataclass(frozen=True)
class NodeAddresses:
    """One node: its management address, and the data service's address if it runs that."""

    management_port: int
    host: str
    kv: Address | None


def nodes_from(config: dict[str, Any], asked_host: str, connection: ConnectionString) -> tuple[NodeAddresses, ...]:
    """Return the nodes of ``config``; a node without host name is the one that was asked.

    Of too many nodes, one more than ``MAX_NODES``: enough for the login to be refused.
    """
    listed = [entry for entry in _list(config.get("nodesExt"))[: MAX_NODES + 1] if isinstance(entry, dict)]
    external = _use_external(listed, connection)
    return tuple(_node(entry, asked_host, external=external, is_tls=connection.is_tls) for entry in listed)


def _use_external(listed: list[dict[str, Any]], connection: ConnectionString) -> bool:
    if connection.network != "auto":
        return connection.network == "external"
    seeds = {address.host for address in connection.kv_addresses}
    if any(entry.get("hostname") in seeds for entry in listed):
        return False
    return any(_external(entry).get("hostname") in seeds for entry in listed)


def _node(entry: dict[str, Any], asked_host: str, *, external: bool, is_tls: bool) -> NodeAddresses:
    services = _dict(entry.get("services"))
    own_host = str(entry.get("hostname") or asked_host)
    host, ports = own_host, services
    alternate = _external(entry)
    if external and alternate.get("hostname"):
        host = str(alternate["hostname"])
        ports = _dict(alternate.get("ports")) or services
    port = ports.get("kvSSL" if is_tls else "kv")
    kv = Address(host.strip("[]"), port) if isinstance(port, int) and not isinstance(port, bool) else None
    management = services.get("mgmt")
    return NodeAddresses(management if isinstance(management, int) else 0, own_host, kv)


def _external(entry: dict[str, Any]) -> dict[str, Any]:
    return _dict(_dict(entry.get("alternateAddresses")).get("external"))


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
