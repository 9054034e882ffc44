"""Which addresses the operator may connect to on a user's behalf.

A resource's author chooses the endpoint, the operator connects from inside the cluster: link-local
addresses (cloud metadata) and the Kubernetes API server are therefore refused. Names are resolved here and
the connection goes to the address that was judged, so that a name cannot change between check and use.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from couchbase_lm_operator.io.name_lookup import looked_up

if TYPE_CHECKING:
    from collections.abc import Iterable

    from couchbase_lm_operator.core.couchbase.connection_string import Address

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
# Metadata services with addresses outside the link-local ranges.
_METADATA = frozenset({ipaddress.ip_address("fd00:ec2::254"), ipaddress.ip_address("fd20:ce::254")})


class ForbiddenAddressError(Exception):
    """The address may not be connected to; the message is a sentence for people."""


class UnresolvedError(Exception):
    """The host name has no address; the message is a sentence for people."""


@dataclass(frozen=True)
class AddressGuard:
    """Refuses link-local addresses and every (address, port) of ``api_servers``."""

    api_servers: frozenset[tuple[IPAddress, int]] = frozenset()

    async def resolve(self, target: Address) -> tuple[str, ...]:
        """Return the IP addresses of ``target``; raises ForbiddenAddressError, UnresolvedError."""
        addresses = await resolved(target)
        for address in addresses:
            self._check(address, target)
        return tuple(str(address) for address in addresses)

    def _check(self, address: IPAddress, target: Address) -> None:
        plain = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        judged = plain or address
        if judged.is_link_local or judged.is_multicast or judged.is_unspecified or judged in _METADATA:
            raise ForbiddenAddressError(
                f"{target.host} is a link-local or special address, to which the operator does not connect: name the "
                "address of the server itself."
            )
        if (judged, target.port) in self.api_servers:
            raise ForbiddenAddressError(
                f"{target.authority} is the Kubernetes API server: name the address of another server."
            )


async def guard_for(api_servers: Iterable[Address]) -> AddressGuard:
    """Return the guard that knows the API server under all its addresses; unresolvable ones are left out."""
    known: set[tuple[IPAddress, int]] = set()
    for server in api_servers:
        try:
            addresses = await resolved(server)
        except UnresolvedError:
            continue
        known |= {(address, server.port) for address in addresses}
    return AddressGuard(frozenset(known))


async def resolved(target: Address) -> tuple[IPAddress, ...]:
    """Return the IP addresses of ``target`` in the order of preference; raises UnresolvedError."""
    try:
        # waits for no thread; the zone goes, as an address with one equals no other
        return (ipaddress.ip_address(target.host.partition("%")[0] if ":" in target.host else target.host),)
    except ValueError:
        pass
    try:
        found = await looked_up(target.host)
    except (OSError, ValueError) as error:
        raise UnresolvedError(f"The host name {target.host} cannot be resolved: check its spelling and DNS.") from error
    return tuple(ipaddress.ip_address(address) for address in found)
