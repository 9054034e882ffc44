"""Scopes and collections of a bucket."""

import asyncio
from collections.abc import Mapping

from aiohttp import web

from e2e.couchbase_emulator.kv.frames import encode_leb128
from e2e.couchbase_emulator.model.bucket import Bucket
from e2e.couchbase_emulator.model.manifest import DEFAULT, SYSTEM, Collection, Scope, name_problem
from e2e.couchbase_emulator.model.roles import ANY, PermissionObject, Target
from e2e.couchbase_emulator.rest.http import Call, RestError, Route, field_errors, json_response, needs_bucket

_MAX_PER_CLUSTER = 1200
_MAX_TTL_SECONDS = 2**31 - 1


async def list_scopes(call: Call) -> web.Response:
    """The manifest, with the collections that the user may see."""
    bucket = call.bucket()
    manifest = bucket.manifest.as_json()
    for scope in manifest["scopes"]:
        scope["collections"] = [
            item
            for item in scope["collections"]
            if call.allowed((Target(bucket.name, scope["name"], item["name"]), "collections"), "read")
        ]
    manifest["scopes"] = [
        scope
        for scope in manifest["scopes"]
        if scope["collections"] or call.allowed((Target(bucket.name, scope["name"], ANY), "collections"), "read")
    ]
    return json_response(manifest)


async def create_scope(call: Call) -> web.Response:
    """Add a scope."""
    call.refuse_unknown("name")
    bucket = call.bucket()
    name = _name(call)
    if name in bucket.manifest.scopes:
        raise field_errors({"_": f'Scope with name "{name}" already exists'})
    if sum(len(item.manifest.scopes) for item in call.cluster.buckets.values()) >= _MAX_PER_CLUSTER:
        raise field_errors({"_": "Maximum number of scopes has been reached"})
    call.cluster.will_change_manifest(bucket)
    bucket.manifest.add_scope(name)
    return _changed(bucket)


async def create_collection(call: Call) -> web.Response:
    """Add a collection."""
    call.refuse_unknown("name", "maxTTL", "history")
    bucket = call.bucket()
    scope = _scope(call, bucket)
    name = _name(call)
    max_ttl_seconds = _max_ttl(call)
    if scope.name == SYSTEM:
        raise field_errors({"_": "cannot create collection in '_system' scope"})
    if name in scope.collections:
        raise field_errors({"_": f'Collection with name "{name}" in scope "{scope.name}" already exists'})
    if sum(len(item.manifest.by_id) for item in call.cluster.buckets.values()) >= _MAX_PER_CLUSTER:
        raise field_errors({"_": "Maximum number of collections has been reached"})
    call.cluster.will_change_manifest(bucket)
    bucket.manifest.add_collection(scope, name, max_ttl_seconds)
    return _changed(bucket)


async def edit_collection(call: Call) -> web.Response:
    """Change the expiry of a collection (7.6 and later)."""
    call.refuse_unknown("maxTTL", "history")
    bucket = call.bucket()
    scope = _scope(call, bucket)
    collection = _collection(call, scope)
    call.cluster.will_change_manifest(bucket)
    collection.max_ttl_seconds = _max_ttl(call, collection.max_ttl_seconds)
    bucket.manifest.uid += 1
    return _changed(bucket)


async def drop_scope(call: Call) -> web.Response:
    """Drop a scope and its documents."""
    bucket = call.bucket()
    scope = _scope(call, bucket)
    if scope.name in (DEFAULT, SYSTEM):
        raise field_errors({"_": f"Deleting {scope.name} scope is not allowed"})
    call.cluster.will_change_manifest(bucket)
    for collection in bucket.manifest.drop_scope(scope.name):
        bucket.documents.drop_prefix(encode_leb128(collection.uid))
    return _changed(bucket)


async def drop_collection(call: Call) -> web.Response:
    """Drop a collection and its documents."""
    bucket = call.bucket()
    scope = _scope(call, bucket)
    collection = _collection(call, scope)
    if scope.name == SYSTEM:
        text = f'Cannot drop system collection "{collection.name}" for scope "{SYSTEM}"'
        raise field_errors({"_": text})
    call.cluster.will_change_manifest(bucket)
    bucket.manifest.drop_collection(scope, collection.name)
    bucket.documents.drop_prefix(encode_leb128(collection.uid))
    return _changed(bucket)


async def ensure_manifest(call: Call) -> web.Response:
    """Answer once all live data nodes have at least this manifest."""
    call.refuse_unknown("timeout", "nodes")
    bucket = call.bucket()
    try:
        wanted = int(call.path["uid"], 16)
        timeout = int(call.form.get("timeout", "30000"))
    except ValueError:
        raise field_errors({"_": "Invalid UID"}) from None
    if not 0 <= timeout <= 300_000:
        raise field_errors({"timeout": "The value must be in range from 0 to 300000."})
    deadline = asyncio.get_running_loop().time() + timeout / 1000
    live = [node.index for node in call.cluster.members if node.alive]
    while any(bucket.manifest_on(node).uid < wanted for node in live):
        if asyncio.get_running_loop().time() > deadline:
            raise RestError(504, text="timeout")
        await asyncio.sleep(0.02)
    return web.Response()


def _changed(bucket: Bucket) -> web.Response:
    return json_response({"uid": f"{bucket.manifest.uid:x}"})


def _name(call: Call) -> str:
    name = call.form.get("name")
    if name is None:
        raise field_errors({"name": "The value must be supplied"})
    problem = name_problem(name)
    if problem:
        raise field_errors({"name": problem})
    return name


def _scope(call: Call, bucket: Bucket) -> Scope:
    name = call.path["scope"]
    scope = bucket.manifest.scopes.get(name)
    if scope is None:
        raise field_errors({"_": f'Scope with name "{name}" is not found'}, status=404)
    return scope


def _collection(call: Call, scope: Scope) -> Collection:
    name = call.path["collection"]
    collection = scope.collections.get(name)
    if collection is None:
        text = f'Collection with name "{name}" in scope "{scope.name}" is not found'
        raise field_errors({"_": text}, status=404)
    return collection


def _max_ttl(call: Call, current: int = 0) -> int:
    text = call.form.get("maxTTL")
    if text is None:
        return current
    if not call.cluster.options.is_enterprise:
        raise field_errors({"maxTTL": "Supported in enterprise edition only"})
    lowest = -1 if call.cluster.options.major_minor >= (7, 6) else 0
    if not text.lstrip("-").isdigit() or not lowest <= int(text) <= _MAX_TTL_SECONDS:
        raise field_errors({"maxTTL": f"The value must be in range from {lowest} to {_MAX_TTL_SECONDS}."})
    return int(text)


def _on_any_collection(parts: Mapping[str, str]) -> tuple[PermissionObject, str]:
    return (Target(parts["bucket"], ANY, ANY), "collections"), "read"


def _on_scope(parts: Mapping[str, str]) -> tuple[PermissionObject, str]:
    return (Target(parts["bucket"], parts["scope"]), "collections"), "write"


_SCOPES = "/pools/default/buckets/{bucket}/scopes"
_COLLECTIONS = _SCOPES + "/{scope}/collections"
ROUTES = [
    Route("GET", _SCOPES, list_scopes, _on_any_collection),
    Route("POST", _SCOPES, create_scope, needs_bucket("write", "collections")),
    Route("POST", _SCOPES + "/@ensureManifest/{uid}", ensure_manifest, _on_any_collection, reads=True),
    Route("DELETE", _SCOPES + "/{scope}", drop_scope, _on_scope),
    Route("POST", _COLLECTIONS, create_collection, _on_scope),
    Route("PATCH", _COLLECTIONS + "/{collection}", edit_collection, _on_scope),
    Route("DELETE", _COLLECTIONS + "/{collection}", drop_collection, _on_scope),
]
