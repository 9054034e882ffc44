"""What a real server does not have: switching faults, reading counters, listing documents. Full administrators only."""

import json
from dataclasses import asdict
from typing import Any

from aiohttp import web

from e2e.couchbase_emulator.kv.frames import encode_leb128
from e2e.couchbase_emulator.rest.http import Call, RestError, Route, json_response, needs

_COMMANDS = (
    "kill_node",
    "revive_node",
    "remove_node",
    "add_node",
    "advance_clock_seconds",
    "move_vbuckets",
    "clear",
    "revive_after_seconds",
)


async def get_faults(call: Call) -> web.Response:
    """Current switches."""
    return json_response(asdict(call.cluster.faults))


async def set_faults(call: Call) -> web.Response:
    """Set switches, and do what the commands say: `{"http_503": 3, "kill_node": 0, "revive_after_seconds": 10}`."""
    try:
        body: Any = json.loads(await call.request.text())
    except json.JSONDecodeError:
        raise RestError(400, text="the body must be a JSON object") from None
    if not isinstance(body, dict):
        raise RestError(400, text="the body must be a JSON object")
    commands = {name: body.pop(name) for name in _COMMANDS if name in body}
    try:
        if commands.pop("clear", False):
            call.cluster.faults.clear()
        call.cluster.faults.update(body)
        revive_after_seconds = commands.pop("revive_after_seconds", None)
        for name, value in commands.items():
            await _command(call, name, value, revive_after_seconds)
    except (ValueError, IndexError, TypeError) as error:
        raise RestError(400, text=str(error)) from None
    return json_response(asdict(call.cluster.faults))


async def _command(call: Call, name: str, value: Any, revive_after_seconds: float | None) -> None:
    if name == "advance_clock_seconds":
        call.cluster.clock.advance(float(value))
    else:
        await call.cluster.node_command(name, int(value), revive_after_seconds)


async def counters(call: Call) -> web.Response:
    """What clients did so far."""
    return json_response(call.cluster.counters.as_json())


async def documents(call: Call) -> web.Response:
    """Key, size, flags and expiry of every document of `?bucket=…&scope=…&collection=…`."""
    place = call.request.query
    try:
        bucket = call.cluster.buckets[place["bucket"]]
        collection = bucket.manifest.scopes[place["scope"]].collections[place["collection"]]
    except KeyError as error:
        raise RestError(404, text=f"nothing is called {error}") from None
    prefix = encode_leb128(collection.uid)
    listed = [
        {
            "key": key[len(prefix) :].decode(errors="replace"),
            "bytes": len(item.value),
            "flags": item.flags,
            "expiry": item.expiry,
        }
        for key, item in bucket.documents.items()
        if key.startswith(prefix)
    ]
    return json_response({"documents": listed})


_ADMIN = needs("write", "admin", "diag")
ROUTES = [
    Route("GET", "/_emulator/faults", get_faults, _ADMIN),
    Route("POST", "/_emulator/faults", set_faults, _ADMIN, reads=True),
    Route("GET", "/_emulator/counters", counters, _ADMIN),
    Route("GET", "/_emulator/documents", documents, _ADMIN),
]
