"""Couchbase connection strings: which hosts, which ports, TLS or not, which network. Pure.

``couchbase://host1,host2:11210?network=default`` and ``couchbases://`` for TLS, as the SDKs read them. A
port is the data port; management ports are the defaults unless management endpoints are given.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qs

KV_PORT = 11210
KV_TLS_PORT = 11207
MANAGEMENT_PORT = 8091
MANAGEMENT_TLS_PORT = 18091

_SHAPE = re.compile(r"^(?P<scheme>couchbases?)://(?P<hosts>[^/?#]+)/?(?:\?(?P<query>[^#]*))?$")
_HOST = re.compile(r"^(?P<host>\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?$")


class ConnectionStringError(ValueError):
    """The connection string cannot be used; the message says why and how one looks."""


@dataclass(frozen=True)
class Address:
    """A host, without brackets also for IPv6, and a TCP port."""

    host: str
    port: int

    @property
    def authority(self) -> str:
        """Return ``host:port`` as it stands in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class ConnectionString:
    """A parsed connection string; ``network`` is ``auto``, ``default`` or ``external``."""

    is_tls: bool
    kv_addresses: tuple[Address, ...]
    network: str

    @property
    def management_urls(self) -> tuple[str, ...]:
        """Return the management endpoints that follow from hosts and scheme."""
        scheme, port = ("https", MANAGEMENT_TLS_PORT) if self.is_tls else ("http", MANAGEMENT_PORT)
        hosts = dict.fromkeys(address.host for address in self.kv_addresses)
        return tuple(f"{scheme}://{Address(host, port).authority}" for host in hosts)


def parse(text: str) -> ConnectionString:
    """Return the parts of a connection string; raises ConnectionStringError."""
    found = _SHAPE.match(text.strip())
    if found is None:
        raise ConnectionStringError(
            "it must look like couchbase://host or couchbases://host1,host2:11207?network=default, without user, "
            "password or path"
        )
    is_tls = found["scheme"] == "couchbases"
    default_port = KV_TLS_PORT if is_tls else KV_PORT
    addresses = tuple(_address(part, default_port) for part in found["hosts"].split(","))
    network = parse_qs(found["query"] or "").get("network", ["auto"])[-1]
    if network not in {"auto", "default", "external"}:
        raise ConnectionStringError("its network= must be auto, default or external")
    return ConnectionString(is_tls, addresses, network)


def _address(part: str, default_port: int) -> Address:
    found = _HOST.match(part)
    if found is None:
        raise ConnectionStringError("each host must be a name or an IP address, optionally with :port")
    port = int(found["port"]) if found["port"] else default_port
    if not 0 < port < 65536:
        raise ConnectionStringError("a port must be between 1 and 65535")
    return Address(found["host"].strip("[]"), port)
