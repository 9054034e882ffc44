"""How a management request becomes an answer: routes with permissions, credentials, error bodies of every shape."""

import asyncio
import base64
import binascii
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from e2e.couchbase_emulator.model.bucket import Bucket
from e2e.couchbase_emulator.model.cluster import Cluster, Identity, Node
from e2e.couchbase_emulator.model.roles import PermissionObject, Target

NOT_FOUND_TEXT = "Requested resource not found.\r\n"
_MUTATING = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class RestError(Exception):
    """An answer that ends the handling of a request: a string or dict is sent as JSON, `text` as plain text."""

    def __init__(
        self, status: int, body: Any = None, *, text: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.text = text
        self.headers = dict(headers or {})

    def response(self) -> web.Response:
        """The answer."""
        if self.text is not None:
            return web.Response(status=self.status, text=self.text, headers=self.headers)
        if self.body is None:
            return web.Response(status=self.status, headers=self.headers)
        return json_response(self.body, status=self.status, headers=self.headers)


def json_response(body: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """A JSON answer."""
    return web.Response(
        status=status,
        body=json.dumps(body, separators=(",", ":")).encode(),
        content_type="application/json",
        headers=headers,
    )


def not_found(text: str = NOT_FOUND_TEXT) -> RestError:
    """404 as plain text."""
    return RestError(404, text=text)


def field_errors(errors: Mapping[str, str], status: int = 400, **more: Any) -> RestError:
    """The usual error body: a text per field, `_` for the request as a whole."""
    return RestError(status, {"errors": dict(errors)} | more)


def enterprise_only(field: str | None = None) -> RestError:
    """What Community Edition answers to Enterprise features."""
    text = "This http API endpoint requires enterprise edition"
    headers = {"X-enterprise-edition-needed": "1"}
    if field is None:
        return RestError(404, text, headers=headers)
    return RestError(400, {"errors": {field: "Supported in enterprise edition only"}}, headers=headers)


@dataclass(frozen=True)
class Call:
    """One request to one node, with whoever sent it."""

    cluster: Cluster
    node: Node
    identity: Identity
    request: web.Request
    form: Mapping[str, str]

    @property
    def path(self) -> Mapping[str, str]:
        """Variable parts of the path, decoded."""
        return self.request.match_info

    def query_flag(self, name: str) -> bool:
        """Whether a query parameter says yes."""
        return self.request.query.get(name) in ("1", "true")

    def bucket(self) -> Bucket:
        """The bucket of the path; 404 when missing or when the uuid guard of the query does not match."""
        bucket = self.cluster.buckets.get(self.path["bucket"])
        if bucket is None:
            raise not_found()
        wanted = self.request.query.get("bucket_uuid")
        if wanted is not None and wanted != bucket.uuid:
            raise not_found("Bucket uuid does not match the requested.\r\n")
        return bucket

    def allowed(self, wanted: PermissionObject, operation: str) -> bool:
        """Whether whoever asks may do this."""
        return self.cluster.is_allowed(self.identity, wanted, operation)

    def require(self, wanted: PermissionObject, operation: str) -> None:
        """Answer 403 unless allowed."""
        if not self.allowed(wanted, operation):
            raise forbidden(wanted, operation)

    def refuse_unknown(self, *known: str) -> None:
        """Answer 400 when the form has parameters that the endpoint does not know."""
        unknown = {name: "Unsupported key" for name in self.form if name not in known}
        if unknown:
            raise field_errors(unknown)


Handler = Callable[[Call], Awaitable[web.StreamResponse]]
Permission = Callable[[Mapping[str, str]], tuple[PermissionObject, str]]


@dataclass(frozen=True)
class Route:
    """A route; no permission means that every known user may call it, `anonymous` that nobody need log in."""

    method: str
    path: str
    handler: Handler
    permission: Permission | None = None
    anonymous: bool = False
    # POST requests that only ask.
    reads: bool = False


def needs(operation: str, *path: str) -> Permission:
    """Permission on something that has no parameters."""
    return lambda _: (path, operation)


def needs_bucket(operation: str, *path: str) -> Permission:
    """Permission on the bucket of the path, or a part of it."""
    return lambda parts: ((Target(parts["bucket"]), *path), operation)


def forbidden(wanted: PermissionObject, operation: str) -> RestError:
    """403 with the missing permission spelled out."""
    permission = "cluster" + "".join(map(_spell, wanted)) + f"!{operation}"
    message = "Forbidden. User needs the following permissions"
    return RestError(403, {"message": message, "permissions": [permission]})


def _spell(vertex: str | Target) -> str:
    if isinstance(vertex, str):
        return f".{vertex}"
    if vertex.scope is None:
        return f".bucket[{vertex.bucket}]"
    return f".collection[{vertex.bucket}:{vertex.scope}:{vertex.collection}]"


def _identify(cluster: Cluster, request: web.Request) -> Identity:
    """Who sends the request; 401 for wrong credentials."""
    header = request.headers.get("Authorization")
    if header is None:
        return Identity("", "anonymous")
    try:
        scheme, _, encoded = header.partition(" ")
        username, separator, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        raise unauthorized() from None
    if scheme.lower() != "basic" or not separator:
        raise unauthorized()
    if not cluster.initialised:
        return Identity("", "anonymous")
    identity = cluster.authenticate_rest(username, password)
    if identity is None:
        raise unauthorized()
    return identity


def unauthorized() -> RestError:
    """401: empty body."""
    return RestError(401, headers={"WWW-Authenticate": 'Basic realm="Couchbase Server Admin / REST"'})


def bind(route: Route, cluster: Cluster, node: Node) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Handler for aiohttp: faults, credentials, permission, guard, then the route's own handler."""

    async def handle(request: web.Request) -> web.StreamResponse:
        cluster.counters.rest_requests[f"{route.method} {route.path}"] += 1
        try:
            await _strike(cluster, request, route)
            identity = _identify(cluster, request)
            if identity.domain == "anonymous" and cluster.initialised and not route.anonymous:
                raise unauthorized()
            call = Call(cluster, node, identity, request, await _form(request))
            _check_access(call, route)
            response = await route.handler(call)
        except RestError as error:
            return error.response()
        if route.method in _MUTATING and not route.reads and response.status < 300:
            cluster.counters.rest_writes += 1
        return response

    return handle


async def _strike(cluster: Cluster, request: web.Request, route: Route) -> None:
    if route.path.startswith("/_emulator"):
        return
    faults = cluster.faults
    if faults.http_slow_seconds > 0:
        await asyncio.sleep(faults.http_slow_seconds)
    if faults.take("http_drop"):
        if request.transport is not None:
            request.transport.close()
        raise RestError(500)
    if faults.take("http_redirect"):
        raise RestError(307, headers={"Location": f"http://elsewhere.invalid{request.path_qs}"})
    if faults.take("http_503"):
        raise RestError(503, text="Service is temporarily unavailable")


def _check_access(call: Call, route: Route) -> None:
    if call.identity.domain == "local":
        user = call.cluster.users.get(call.identity.name)
        if user is not None and user.temporary_password:
            raise RestError(403, {"message": "Password expired", "passwordExpired": True})
    if route.permission is not None:
        call.require(*route.permission(call.path))
    wanted = call.request.query.get("uuid")
    if wanted is not None and wanted != call.cluster.uuid:
        raise not_found("Cluster uuid does not match the requested.\r\n")


async def _form(request: web.Request) -> Mapping[str, str]:
    if request.method not in _MUTATING or request.content_type != "application/x-www-form-urlencoded":
        return {}
    return {name: value for name, value in (await request.post()).items() if isinstance(value, str)}
