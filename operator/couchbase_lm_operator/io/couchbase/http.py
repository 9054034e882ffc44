"""HTTP to the management API.

Endpoints are tried in turn until one answers. No redirect is followed, no proxy or netrc of the
environment is used, addresses pass the guard, answers are cut at a size, and no body leaves this package.
Each request has a deadline that covers its whole answer: a server that sends byte by byte ends there too.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

from couchbase_lm_operator.core.couchbase.connection_string import Address
from couchbase_lm_operator.core.couchbase_state import CouchbaseTrouble, Trouble
from couchbase_lm_operator.io.addresses import ForbiddenAddressError, UnresolvedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from couchbase_lm_operator.io.addresses import AddressGuard
    from couchbase_lm_operator.io.couchbase.access import Credentials, TlsTrust

MAX_BODY_BYTES = 8 * 1024 * 1024
CONNECT_TIMEOUT_SECONDS = 4.0
READ_TIMEOUT_SECONDS = 10.0


class TroubleError(Exception):
    """The cluster could not be asked; carries what to tell."""

    def __init__(self, trouble: CouchbaseTrouble) -> None:
        super().__init__(trouble.detail)
        self.trouble = trouble


@dataclass(frozen=True)
class Answer:
    """One answer: ``content`` is the parsed JSON, or the text when it is none; never shown to people."""

    status: int
    content: Any
    endpoint: str


@dataclass(frozen=True)
class _Candidate:
    url: httpx.URL
    host_header: str
    server_name: str
    endpoint: str


class ManagementApi:
    """The management API of one cluster; use as an async context manager."""

    def __init__(self, urls: tuple[str, ...], admin: Credentials, trust: TlsTrust, guard: AddressGuard) -> None:
        self._urls = urls
        self._admin = admin
        self._guard = guard
        self._answering: _Candidate | None = None
        try:
            # Without TLS an empty context, which trusts nobody: loading the authorities takes longer than a request.
            has_tls = any(url.startswith("https:") for url in urls)
            verify = trust.context() if has_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        except ssl.SSLError as error:
            raise TroubleError(
                CouchbaseTrouble(Trouble.TLS, "The CA of spec.couchbase.tls holds no PEM certificate: correct it.")
            ) from error
        self._client = httpx.AsyncClient(
            verify=verify,
            trust_env=False,
            follow_redirects=False,
        )

    async def __aenter__(self) -> ManagementApi:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def request(
        self,
        method: str,
        path: str,
        *,
        form: Mapping[str, str] | None = None,
        text: str | None = None,
        credentials: Credentials | None = None,
        timeout_seconds: float | None = None,
    ) -> Answer:
        """Return the answer to one request, as the admin unless ``credentials`` are given.

        ``timeout_seconds`` is the longest that one endpoint may take, from connecting to the last byte.
        Raises TroubleError when no endpoint answers, or the answer is a redirect.
        """
        user = credentials or self._admin
        deadline_seconds = timeout_seconds or READ_TIMEOUT_SECONDS
        failure: CouchbaseTrouble | None = None
        async for candidate in self._candidates():
            request = self._client.build_request(
                method,
                candidate.url.copy_with(raw_path=path.encode("ascii")),
                data=form,
                content=text,
                headers={"Host": candidate.host_header},
                extensions={"sni_hostname": candidate.server_name},
                timeout=httpx.Timeout(deadline_seconds, connect=CONNECT_TIMEOUT_SECONDS),
            )
            try:
                async with asyncio.timeout(deadline_seconds):
                    answer = await self._send(request, user, candidate.endpoint)
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
                failure = _connect_trouble(error, candidate.endpoint)
                self._answering = None
                continue
            except (httpx.HTTPError, TimeoutError) as error:
                failure = _broken_trouble(error, candidate.endpoint)
                self._answering = None
                if method == "GET":
                    continue
                # A write may have been executed: it is not repeated elsewhere, the next pass looks again.
                raise TroubleError(failure) from None
            self._answering = candidate
            return answer
        failure = failure or CouchbaseTrouble(Trouble.UNREACHABLE, "There is no management endpoint to ask.")
        raise TroubleError(replace(failure, changed_nothing=True))

    async def _candidates(self) -> AsyncIterator[_Candidate]:
        # The endpoint that answered last goes first; the others only when it fails.
        if self._answering is not None:
            yield self._answering
        unresolved: UnresolvedError | None = None
        for url in self._urls:
            try:
                parts = urlsplit(url)
                port = parts.port or (18091 if parts.scheme == "https" else 8091)
            except ValueError as error:
                told = f"{url} is no URL: correct spec.couchbase.managementEndpoints."
                raise TroubleError(CouchbaseTrouble(Trouble.UNREACHABLE, told, url)) from error
            target = Address(parts.hostname or "", port)
            try:
                addresses = await self._guard.resolve(target)
            except ForbiddenAddressError as error:
                raise TroubleError(CouchbaseTrouble(Trouble.FORBIDDEN_ADDRESS, str(error), url)) from error
            except UnresolvedError as error:
                unresolved = error
                continue
            for address in addresses:
                pinned = httpx.URL(f"{parts.scheme}://{Address(address, port).authority}/")
                yield _Candidate(pinned, target.authority, target.host, f"{parts.scheme}://{target.authority}")
        if unresolved is not None and len(self._urls) == 1:
            raise TroubleError(CouchbaseTrouble(Trouble.UNREACHABLE, str(unresolved), self._urls[0])) from unresolved

    async def _send(self, request: httpx.Request, user: Credentials, endpoint: str) -> Answer:
        auth = httpx.BasicAuth(user.username, user.password)
        response = await self._client.send(request, auth=auth, stream=True)
        try:
            if response.is_redirect:
                raise TroubleError(
                    CouchbaseTrouble(
                        Trouble.REDIRECTED,
                        f"{endpoint} answers with a redirect, which is not followed: name the Couchbase management "
                        "address itself in spec.couchbase.managementEndpoints or connectionString.",
                        endpoint,
                    )
                )
            body = b""
            async for part in response.aiter_bytes():
                body += part
                if len(body) > MAX_BODY_BYTES:
                    raise TroubleError(
                        CouchbaseTrouble(
                            Trouble.NOT_COUCHBASE, f"{endpoint} sends more than a management API would.", endpoint
                        )
                    )
        finally:
            await response.aclose()
        return Answer(response.status_code, _parsed(body), endpoint)


def _parsed(body: bytes) -> Any:
    text = body.decode("utf-8", "replace")
    try:
        return json.loads(text)
    except ValueError:
        return text


def _connect_trouble(error: httpx.HTTPError, endpoint: str) -> CouchbaseTrouble:
    if _is_tls(error):
        return CouchbaseTrouble(
            Trouble.TLS,
            f"The certificate of {endpoint} cannot be verified: put the cluster's CA into spec.couchbase.tls, use a "
            "name that the certificate carries, and a port that speaks TLS.",
            endpoint,
        )
    return CouchbaseTrouble(
        Trouble.UNREACHABLE,
        f"{endpoint} does not accept connections: check spec.couchbase.connectionString, managementEndpoints and "
        "network policies.",
        endpoint,
    )


def _broken_trouble(error: httpx.HTTPError | TimeoutError, endpoint: str) -> CouchbaseTrouble:
    if isinstance(error, httpx.TimeoutException | TimeoutError):
        return CouchbaseTrouble(
            Trouble.UNREACHABLE,
            f"{endpoint} does not answer in time: check that it is the management port of "
            "spec.couchbase.managementEndpoints or connectionString (8091, with TLS 18091), its load, and network "
            "policies.",
            endpoint,
        )
    if isinstance(error, httpx.RemoteProtocolError) and "disconnected" not in str(error):
        return CouchbaseTrouble(
            Trouble.NOT_COUCHBASE,
            f"What answers at {endpoint} does not speak HTTP: name the management port (8091, with TLS 18091).",
            endpoint,
        )
    return CouchbaseTrouble(
        Trouble.UNREACHABLE,
        f"{endpoint} closed the connection without an answer: check that it is the management port (8091, with TLS "
        "18091).",
        endpoint,
    )


def _is_tls(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__ or error.__context__
    return False
