"""Data nodes and their ports from a cluster's ``nodesExt`` list. Pure.

The list is the same in ``GET /pools/default/nodeServices`` and in the configuration that the data protocol
hands out. ``network`` chooses between a node's own address and its external one, as the SDKs do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from couchbase_lm_operator.core.connection_string import Address


@dataclass(frozen=True)
class NodeAddresses:
    """One node: its management address, and the data service's address if it runs that."""

    management_port: int
    host: str
    kv: Address | None


def nodes_from(config: dict[str, Any], asked_host: str, network: str, *, is_tls: bool) -> tuple[NodeAddresses, ...]:
    """Return the nodes of ``config``; a node without host name is the one that was asked."""
    listed = [entry for entry in _list(config.get("nodesExt")) if isinstance(entry, dict)]
    external = _use_external(listed, asked_host, network)
    return tuple(_node(entry, asked_host, external=external, is_tls=is_tls) for entry in listed)


def _use_external(listed: list[dict[str, Any]], asked_host: str, network: str) -> bool:
    if network != "auto":
        return network == "external"
    # As the SDKs: the network in which the host that was asked for is listed.
    if any(entry.get("hostname") == asked_host for entry in listed):
        return False
    return any(_external(entry).get("hostname") == asked_host for entry in listed)


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
