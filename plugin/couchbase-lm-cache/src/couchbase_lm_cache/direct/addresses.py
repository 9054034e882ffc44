"""The connection string, and where to knock first: several hosts, or a DNS service record."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import dns.exception
import dns.resolver

from couchbase_lm_cache.errors import ConnectError

_PORTS = {"couchbase": 11210, "couchbases": 11207}
_RESOLVE_TIMEOUT_SECONDS = 2.0
_NETWORKS = {"default", "external", "auto"}


class Node(NamedTuple):
    """Address of a data node's key-value port."""

    host: str
    port: int


@dataclass(frozen=True)
class ConnectionAddress:
    """What a connection string says.

    Attributes:
        hosts: host and port, in the order written; the port is None where none was written.
        network: ``default``, ``external`` or ``auto``: which addresses of the nodes to use.
    """

    uses_tls: bool
    hosts: tuple[tuple[str, int | None], ...]
    network: str = "auto"

    @property
    def default_port(self) -> int:
        """Return the key-value port of this scheme."""
        return _PORTS["couchbases" if self.uses_tls else "couchbase"]

    def seeds(self, limit_seconds: float = _RESOLVE_TIMEOUT_SECONDS) -> list[Node]:
        """Return the nodes to begin with: those of the service record of a lone host without port, else the hosts.

        Args:
            limit_seconds: how long a name server is waited for at most, and never longer than two seconds.
        """
        if len(self.hosts) == 1 and self.hosts[0][1] is None and (found := self._from_service_record(limit_seconds)):
            return found
        return [Node(host, port or self.default_port) for host, port in self.hosts]

    def _from_service_record(self, limit_seconds: float) -> list[Node]:
        name = f"_couchbase{'s' if self.uses_tls else ''}._tcp.{self.hosts[0][0]}"
        try:
            answer = dns.resolver.resolve(
                name, "SRV", lifetime=max(0.001, min(limit_seconds, _RESOLVE_TIMEOUT_SECONDS))
            )
        except (dns.exception.DNSException, OSError):
            return []
        found = [Node(str(record.target).rstrip("."), int(record.port)) for record in answer]
        random.shuffle(found)
        return found


def parse_connection_string(text: str) -> ConnectionAddress:
    """Read ``couchbase[s]://host[:port][,host…][?network=…]``.

    Raises:
        ConnectError: a part of it cannot be understood; the message names it.
    """
    scheme, _, rest = text.partition("://")
    authority, _, query = rest.partition("?")
    hosts = tuple(_host(part) for part in authority.split("/")[0].split(",") if part)
    options = parse_qs(query)
    network = options.get("network", ["auto"])[-1]
    if scheme not in _PORTS or not hosts:
        raise ConnectError(f"connection_string {text} names no host")
    if network not in _NETWORKS:
        raise ConnectError(f"connection_string has network={network}: the direct transport knows default and external")
    return ConnectionAddress(scheme == "couchbases", hosts, network)


def _host(part: str) -> tuple[str, int | None]:
    try:
        split = urlsplit(f"//{part}")
        port = split.port
    except ValueError:
        raise ConnectError(f"connection_string names {part}, which is no host with a port") from None
    if not split.hostname:
        raise ConnectError(f"connection_string names {part}, which is no host")
    return split.hostname, port
