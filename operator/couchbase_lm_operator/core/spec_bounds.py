"""Figures, times, addresses and shapes in a spec that cannot work, whatever the world looks like. Pure.

The API server refuses what a pattern or a simple rule can tell; here is what needs arithmetic or more than
one field, and, for people who plan offline, once more what the API server's own rules would say.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.api.schema import MAX_BYTES_TEXT
from couchbase_lm_operator.core.couchbase import connection_string
from couchbase_lm_operator.core.quantity import KIB, parse_bytes, parse_seconds
from couchbase_lm_operator.core.sizing.chunking import MAX_SHARD_BYTES
from couchbase_lm_operator.core.verdict import Refuse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec

_ROLLOUT_STEP = re.compile(r"^[0-9]{1,4}%?$")
_MAX_PERCENT = 100
_DAY_SECONDS = 86_400
_MIN_GRACE_SECONDS = 10
# twice the start time-out is a 32-bit field of the Deployment
_MAX_STARTUP_SECONDS = 7 * _DAY_SECONDS
# the adapter's own limit: Couchbase takes expiry as a 32-bit time
_MAX_TTL_SECONDS = 30 * 365 * _DAY_SECONDS
_MAX_BUCKET_TTL_SECONDS = (1 << 31) - 1


def refused_bounds(spec: LMCacheCouchbaseSpec) -> Refuse | None:
    """Return the first field with a value that is out of its bounds, or None."""
    told = next(_problems(spec), None)
    return Refuse(Reason.INVALID_SPEC, told) if told is not None else None


def is_rollout_refused(spec: LMCacheCouchbaseSpec) -> bool:
    """Say whether ``spec.rollout`` itself is out of its bounds."""
    return any(_rollout(spec))


def _problems(spec: LMCacheCouchbaseSpec) -> Iterator[str]:
    yield from _sizes(spec)
    yield from _times(spec)
    yield from _addresses(spec)
    yield from _resources(spec)
    yield from _rollout(spec)


def _sizes(spec: LMCacheCouchbaseSpec) -> Iterator[str]:
    folder = spec.model.weights.empty_dir if spec.model.weights else None
    sizes = {
        "spec.cache.l1Size": spec.cache.l1_size,
        "spec.cache.shardSize": spec.cache.shard_size,
        "spec.couchbase.bucket.memoryQuota": spec.couchbase.bucket.memory_quota,
        "spec.model.weights.emptyDir.sizeLimit": folder.size_limit if folder else None,
    }
    for field, text in sizes.items():
        if text is not None and parse_bytes(text) > parse_bytes(MAX_BYTES_TEXT):
            yield f"{field} {text} is too much: {MAX_BYTES_TEXT} at most."
        if text is not None and parse_bytes(text) == 0:
            yield f"{field} {text} is nothing: give a size such as 1Gi, or remove the field."
    shard = spec.cache.shard_size
    if shard is not None and not KIB <= parse_bytes(shard) <= MAX_SHARD_BYTES:
        yield f"spec.cache.shardSize {shard} must be from 1Ki to 16Mi."


def _times(spec: LMCacheCouchbaseSpec) -> Iterator[str]:
    startup, grace, ttl = spec.engine.startup_timeout, spec.termination_grace_period, spec.cache.ttl
    if parse_seconds(startup) == 0:
        yield f"spec.engine.startupTimeout {startup} leaves no time to load: use for example 30m."
    if parse_seconds(startup) > _MAX_STARTUP_SECONDS:
        yield f"spec.engine.startupTimeout {startup} is too long: 7d at most."
    if parse_seconds(grace) < _MIN_GRACE_SECONDS:
        # nothing can be finished in less
        yield f"spec.terminationGracePeriod {grace} is too short: {_MIN_GRACE_SECONDS}s at least."
    if parse_seconds(grace) > _DAY_SECONDS:
        yield f"spec.terminationGracePeriod {grace} is too long: 24h at most."
    if parse_seconds(ttl) > _MAX_TTL_SECONDS:
        yield f"spec.cache.ttl {ttl} is too long: 10950d (30 years) at most, or 0 to keep chunks for ever."
    max_ttl = spec.couchbase.bucket.max_ttl
    if max_ttl is not None and parse_seconds(max_ttl) > _MAX_BUCKET_TTL_SECONDS:
        yield f"spec.couchbase.bucket.maxTTL {max_ttl} is too long: Couchbase takes {_MAX_BUCKET_TTL_SECONDS}s at most."


def _addresses(spec: LMCacheCouchbaseSpec) -> Iterator[str]:
    try:
        connection_string.parse(spec.couchbase.connection_string)
    except connection_string.ConnectionStringError as error:
        yield f"spec.couchbase.connectionString cannot be used: {error}."
    urls = {
        f"spec.couchbase.managementEndpoints[{position}]": url
        for position, url in enumerate(spec.couchbase.management_endpoints)
    }
    hub = spec.model.config.hub if spec.model.config else None
    if hub is not None:
        urls["spec.model.config.hub.endpoint"] = hub.endpoint
    for field, url in urls.items():
        if not _is_url(url):
            yield f"{field} {url!r} is no URL: it needs a host, and its port must be from 1 to 65535."


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none, or half an IPv6 address
        return False


def _resources(spec: LMCacheCouchbaseSpec) -> Iterator[str]:
    for field, given in (("engine", spec.engine.resources), ("cache", spec.cache.resources)):
        for kind in ("requests", "limits"):
            if not isinstance((given or {}).get(kind) or {}, dict):
                yield f"spec.{field}.resources.{kind} must be a mapping such as {{memory: 8Gi}}."


def _rollout(spec: LMCacheCouchbaseSpec) -> Iterator[str]:
    steps = {"maxSurge": spec.rollout.max_surge, "maxUnavailable": spec.rollout.max_unavailable}
    for field, value in steps.items():
        is_percentage = isinstance(value, str) and value.endswith("%")
        if not _ROLLOUT_STEP.match(str(value)) or (isinstance(value, str) and not is_percentage):
            yield f"spec.rollout.{field} {value!r} is neither a number nor a percentage."
        elif is_percentage and _number(value) > _MAX_PERCENT:
            yield f"spec.rollout.{field} {value!r} is more than 100%."
    if all(_ROLLOUT_STEP.match(str(value)) and _number(value) == 0 for value in steps.values()):
        yield "spec.rollout: maxSurge and maxUnavailable are both 0: no pod could be replaced."


def _number(step: int | str) -> int:
    return int(str(step).rstrip("%"))
