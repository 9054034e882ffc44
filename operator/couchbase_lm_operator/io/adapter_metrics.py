"""Asks the adapter in a pod what it has stored and loaded, on the pod's metrics port.

The pod is not trusted: a short answer within a short time, no redirect, and only the numbers of it are kept.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import ssl
from dataclasses import dataclass

import httpx

from couchbase_lm_operator.core.adapter_reading import SERIES, AdapterReading, ReadingError, parse_reading
from couchbase_lm_operator.io.addresses import AddressGuard, ForbiddenAddressError, UnresolvedError
from couchbase_lm_operator.io.guarded_transport import GuardedTransport

logger = logging.getLogger(__name__)

MAX_ANSWER_BYTES = 1 << 20
_DEADLINE_SECONDS = 3.0
_UNANSWERED = (UnresolvedError, httpx.HTTPError, httpx.InvalidURL, TimeoutError)


@dataclass(frozen=True)
class AdapterMetrics:
    """Reads pods; ``deadline_seconds`` is the longest that one of them may take."""

    guard: AddressGuard
    deadline_seconds: float = _DEADLINE_SECONDS

    async def read(self, address: str, port: int) -> AdapterReading | None:
        """Return what the adapter at a pod's IP address tells; None when it does not, which is logged."""
        try:
            url = _url(address, port)
            async with asyncio.timeout(self.deadline_seconds), self._client() as client:
                return parse_reading(await _body(client, url))
        except (*_UNANSWERED, ForbiddenAddressError, ValueError) as error:
            # nothing of the answer: only the kind of trouble
            problem = str(error) if isinstance(error, ForbiddenAddressError | ReadingError) else type(error).__name__
            logger.info("a pod does not tell its metrics", extra={"pod": f"{address}:{port}", "problem": problem})
            return None

    def _client(self) -> httpx.AsyncClient:
        # plain HTTP: a context that trusts nobody
        transport = GuardedTransport(self.guard, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        return httpx.AsyncClient(
            transport=transport, timeout=self.deadline_seconds, follow_redirects=False, trust_env=False
        )


def _url(address: str, port: int) -> httpx.URL:
    """Return where to ask; raises ValueError for what is no IP address."""
    host = str(ipaddress.ip_address(address))
    return httpx.URL(scheme="http", host=host, port=port, path="/metrics", params=[("name[]", name) for name in SERIES])


async def _body(client: httpx.AsyncClient, url: httpx.URL) -> str:
    async with client.stream("GET", url, headers={"Accept": "text/plain", "Accept-Encoding": "identity"}) as response:
        if response.status_code != httpx.codes.OK:
            raise ReadingError(f"it answers HTTP {response.status_code}")
        body = bytearray()
        async for part in response.aiter_raw():
            body += part
            if len(body) > MAX_ANSWER_BYTES:
                raise ReadingError(f"its answer is longer than {MAX_ANSWER_BYTES} bytes")
    return body.decode()
