"""Buckets: list, create, edit, delete, flush, and the configuration documents of a bucket."""

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from aiohttp import web

from e2e.couchbase_emulator.model.bucket import MIB, Bucket
from e2e.couchbase_emulator.model.roles import ANY, PermissionObject, Target
from e2e.couchbase_emulator.rest.bucket_form import BucketForm
from e2e.couchbase_emulator.rest.http import (
    Call,
    RestError,
    Route,
    field_errors,
    json_response,
    needs,
    needs_bucket,
    not_found,
)
from e2e.couchbase_emulator.rest.pools import MAX_BUCKETS, node_json
from e2e.couchbase_emulator.topology import bucket_config, vbucket_map

# How long DELETE waits for a bucket to shut down.
_DELETE_WAIT_SECONDS = 30.0


def _on_any_bucket(_: Mapping[str, str]) -> tuple[PermissionObject, str]:
    return (Target(ANY), "settings"), "read"


async def list_buckets(call: Call) -> web.Response:
    """Buckets that the user may see."""
    return json_response(
        [
            bucket_json(call, bucket)
            for bucket in call.cluster.buckets.values()
            if call.allowed((Target(bucket.name), "settings"), "read")
        ]
    )


async def get_bucket(call: Call) -> web.Response:
    """One bucket."""
    return json_response(bucket_json(call, call.bucket()))


async def create_bucket(call: Call) -> web.Response:
    """Create a bucket: 202 before it is usable; `just_validate` changes nothing."""
    cluster = call.cluster
    if len(cluster.buckets) >= MAX_BUCKETS:
        raise RestError(400, {"_": f"Cannot create more than {MAX_BUCKETS} buckets"})
    form = BucketForm(cluster, call.form, existing=None)
    settings = form.settings()
    summaries = form.summaries(settings)
    if call.query_flag("just_validate"):
        return _validated(call, form, form.replica_warning(settings), summaries)
    if form.errors:
        raise field_errors(form.errors, summaries=summaries)
    if cluster.is_shutting_down(settings.name) or cluster.faults.take("bucket_still_exists"):
        raise field_errors({"_": "Bucket with given name still exists"}, status=500, summaries=summaries)
    cluster.add_bucket(settings)
    return web.Response(status=202, headers={"Location": f"/pools/default/buckets/{quote(settings.name)}"})


async def edit_bucket(call: Call) -> web.Response:
    """Edit a bucket; a different bucket type is ignored."""
    bucket = call.bucket()
    form = BucketForm(call.cluster, call.form, existing=bucket)
    settings = form.settings()
    summaries = form.summaries(settings)
    if call.query_flag("just_validate"):
        return _validated(call, form, form.replica_warning(settings), summaries)
    if form.errors:
        raise field_errors(form.errors, summaries=summaries)
    bucket.settings = settings
    bucket.apply_settings()
    call.cluster.revision += 1
    return web.Response()


def _validated(call: Call, form: BucketForm, warning: str | None, summaries: dict[str, Any]) -> web.Response:
    errors = dict(form.errors)
    if warning and not call.query_flag("ignore_warnings"):
        errors.setdefault("replicaNumber", warning)
    return json_response({"errors": errors, "summaries": summaries}, status=400 if errors else 200)


async def delete_bucket(call: Call) -> web.Response:
    """Delete a bucket with everything in it."""
    if call.path["bucket"] not in call.cluster.buckets:
        raise not_found("The bucket to be deleted was not found.\r\n")
    bucket = call.bucket()
    call.cluster.remove_bucket(bucket.name)
    incomplete = call.cluster.faults.take("bucket_delete_incomplete")
    if not incomplete:
        await asyncio.sleep(min(call.cluster.faults.bucket_delete_seconds, _DELETE_WAIT_SECONDS))
    if incomplete or call.cluster.is_shutting_down(bucket.name):
        raise RestError(500, {"_": "Bucket deletion not yet complete, but will continue.\r\n"})
    return web.Response()


async def flush_bucket(call: Call) -> web.Response:
    """Remove all documents."""
    bucket = call.bucket()
    if not bucket.settings.flush_enabled:
        raise RestError(400, {"_": "Flush is disabled for the bucket"})
    bucket.documents.clear()
    return web.Response()


async def terse_config(call: Call) -> web.Response:
    """Terse configuration of a bucket."""
    return json_response(bucket_config(call.cluster, call.bucket(), call.node))


def bucket_json(call: Call, bucket: Bucket) -> dict[str, Any]:
    """A bucket as REST shows it."""
    cluster, settings = call.cluster, bucket.settings
    nodes = len(cluster.members)
    path = f"/pools/default/buckets/{quote(bucket.name)}"
    controllers = {"compactAll": f"{path}/controller/compactBucket"}
    if settings.flush_enabled:
        controllers["flush"] = f"{path}/controller/doFlush"
    shown = cluster.members if cluster.is_mapped(bucket) else []
    status = "healthy" if cluster.is_ready(bucket) else "warmup"
    body: dict[str, Any] = {
        "name": bucket.name,
        "uuid": bucket.uuid,
        "bucketType": settings.bucket_type,
        "nodeLocator": "vbucket",
        "uri": f"{path}?bucket_uuid={bucket.uuid}",
        "controllers": controllers,
        "nodes": [node_json(cluster, node, this=node is call.node, status=status) for node in shown],
        "collectionsManifestUid": f"{bucket.manifest.uid:x}",
        "quota": {"ram": settings.ram_quota_mib * MIB * nodes, "rawRAM": settings.ram_quota_mib * MIB},
        "basicStats": basic_stats(bucket, nodes),
        "replicaNumber": settings.replicas,
        "threadsNumber": 3,
        "evictionPolicy": settings.eviction_policy,
        "storageBackend": settings.storage_backend,
        "durabilityMinLevel": settings.durability_min_level,
        "conflictResolutionType": settings.conflict_resolution_type,
        "memoryLowWatermark": settings.low_watermark_percent,
        "memoryHighWatermark": settings.high_watermark_percent,
        "rank": settings.rank,
        "bucketCapabilitiesVer": "",
        "bucketCapabilities": bucket_config(cluster, bucket)["bucketCapabilities"],
    }
    if cluster.options.major_minor >= (8, 0):
        body["numVBuckets"] = settings.vbuckets
    if settings.bucket_type == "membase":
        body["replicaIndex"] = False
    if cluster.options.is_enterprise:
        body |= {"maxTTL": settings.max_ttl_seconds, "compressionMode": settings.compression_mode}
    if not call.query_flag("skipMap"):
        body["vBucketServerMap"] = vbucket_map(cluster, bucket)
    return body


def basic_stats(bucket: Bucket, nodes: int) -> dict[str, Any]:
    """Usage of a bucket."""
    used = sum(bucket.documents.used_bytes)
    quota = bucket.settings.ram_quota_mib * MIB * nodes
    return {
        "quotaPercentUsed": used * 100 / quota,
        "opsPerSec": 0,
        "diskFetches": 0,
        "itemCount": bucket.documents.count(),
        "diskUsed": 0,
        "dataUsed": 0 if bucket.settings.bucket_type == "ephemeral" else used,
        "memUsed": used,
        "vbActiveNumNonResident": 0,
    }


_BUCKETS = "/pools/default/buckets"
ROUTES = [
    Route("GET", _BUCKETS, list_buckets, _on_any_bucket),
    Route("POST", _BUCKETS, create_bucket, needs("create", "buckets")),
    Route("GET", _BUCKETS + "/{bucket}", get_bucket, needs_bucket("read", "settings")),
    Route("POST", _BUCKETS + "/{bucket}", edit_bucket, needs_bucket("write", "settings")),
    Route("DELETE", _BUCKETS + "/{bucket}", delete_bucket, needs_bucket("delete")),
    Route("POST", _BUCKETS + "/{bucket}/controller/doFlush", flush_bucket, needs_bucket("flush")),
    Route("GET", "/pools/default/b/{bucket}", terse_config, needs_bucket("read", "settings")),
]
