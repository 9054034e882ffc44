"""Who am I, and what may I do."""

from aiohttp import web

from e2e.couchbase_emulator.model.roles import PermissionObject, Target
from e2e.couchbase_emulator.rest.http import Call, RestError, Route, json_response
from e2e.couchbase_emulator.rest.role_strings import grant_json
from e2e.couchbase_emulator.rest.users import user_json

_DEPTHS = {"bucket": 1, "scope": 2, "collection": 3}


async def whoami(call: Call) -> web.Response:
    """The user behind the credentials."""
    identity = call.identity
    user = call.cluster.users.get(identity.name) if identity.domain == "local" else None
    body = user_json(call.cluster, user) if user else {"id": identity.name, "domain": identity.domain}
    grants = call.cluster.grants_of(identity)
    return json_response(body | {"roles": [grant_json(grant, with_origins=False) for grant in grants]})


async def check_permissions(call: Call) -> web.Response:
    """Which of the permissions in the body, separated by commas, whoever asks holds."""
    body = await call.request.text()
    if not body:
        raise RestError(400, "Request body should not be empty.")
    answers, malformed = {}, []
    for text in (part.strip() for part in body.split(",")):
        parsed = parse_permission(text)
        if parsed is None:
            malformed.append(text)
        else:
            answers[text] = call.allowed(*parsed)
    if malformed:
        raise RestError(400, f"Malformed permissions: [{','.join(malformed)}].")
    return json_response(answers)


def parse_permission(text: str) -> tuple[PermissionObject, str] | None:
    """Object and operation of `cluster.collection[b:s:c].data.docs!read`, or None when it is malformed."""
    path, separator, operation = text.partition("!")
    if not separator or "!" in operation or not path.startswith("cluster"):
        return None
    vertices: list[str | Target] = []
    rest = path.removeprefix("cluster")
    while rest:
        vertex, rest = _take_vertex(rest)
        if vertex is None:
            return None
        vertices.append(vertex)
    return tuple(vertices), operation


def _take_vertex(text: str) -> tuple[str | Target | None, str]:
    if not text.startswith("."):
        return None, ""
    name_end = next((index for index, char in enumerate(text[1:], 1) if char in ".["), len(text))
    name, rest = text[1:name_end], text[name_end:]
    if not rest.startswith("["):
        return name, rest
    inside, bracket, rest = rest[1:].partition("]")
    parameters = inside.split(":") if name != "bucket" else [inside]
    if not bracket or len(parameters) != _DEPTHS.get(name):
        return None, ""
    return Target(*parameters), rest


ROUTES = [
    Route("GET", "/whoami", whoami),
    Route("POST", "/pools/default/checkPermissions", check_permissions, reads=True),
]
