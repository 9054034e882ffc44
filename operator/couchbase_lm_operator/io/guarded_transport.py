"""An httpx transport that connects only to addresses which the guard has judged.

The name is resolved here, for every request, and the connection goes to the address that was judged: neither
a redirect nor a name that changes its address leads elsewhere. TLS still verifies the name of the URL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx

from couchbase_lm_operator.core.couchbase.connection_string import Address

if TYPE_CHECKING:
    import ssl

    from couchbase_lm_operator.io.addresses import AddressGuard

_PORTS = {"http": 80, "https": 443}


def address_of(url: httpx.URL) -> Address:
    """Return host and port of a URL, the port of its scheme when it names none."""
    return Address(url.host, url.port or _PORTS.get(url.scheme, 0))


class GuardedTransport(httpx.AsyncBaseTransport):
    """For requests without a body: an address that does not answer is followed by the next one.

    One transport serves one host: connections are pooled by address, whatever name their TLS has verified.
    No proxy of the environment is used.
    """

    def __init__(self, guard: AddressGuard, tls: ssl.SSLContext) -> None:
        self._guard = guard
        self._inner = httpx.AsyncHTTPTransport(verify=tls, trust_env=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request to the first address that answers.

        Raises:
            ForbiddenAddressError: an address of the host is one that the operator does not connect to.
            UnresolvedError: the host has no address.
            httpx.HTTPError: no address answers, or not in HTTP.
        """
        failure: httpx.TransportError | None = None
        for address in await self._guard.resolve(address_of(request.url)):
            pinned = httpx.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,
                extensions={**request.extensions, "sni_hostname": request.url.host},
            )
            try:
                return await self._inner.handle_async_request(pinned)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failure = error
        raise failure or httpx.ConnectError("the host has no address")

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()
