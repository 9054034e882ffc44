"""Removal of objects: the manifest first, so that nobody finds an object that is half gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from couchbase_lm_cache.errors import ManifestError
from couchbase_lm_cache.keys import shard_key
from couchbase_lm_cache.sharding import parse_manifest
from couchbase_lm_cache.transport import Document, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from couchbase_lm_cache.transport import Transport

_KEYS_PER_CALL = 16


def remove_objects(transport: Transport, keys: Sequence[str], timeout_seconds: float) -> list[int | None]:
    """Remove objects with their shards.

    Returns:
        For each key the size in bytes of the object that was removed; None where there was none or the
        removal failed. Shards that could not be removed are unreachable and expire or are evicted.
    """
    sizes: list[int | None] = []
    for start in range(0, len(keys), _KEYS_PER_CALL):
        batch = keys[start : start + _KEYS_PER_CALL]
        documents = transport.read(batch, timeout_seconds)
        removed = transport.remove(batch, timeout_seconds)
        for key, document, outcome in zip(batch, documents, removed, strict=True):
            size, shards = _extent(document)
            sizes.append(size if outcome is Outcome.OK else None)
            if outcome is Outcome.OK:
                _remove_shards(transport, key, shards, timeout_seconds)
    return sizes


def _remove_shards(transport: Transport, key: str, shards: int, timeout_seconds: float) -> None:
    keys = [shard_key(key, index) for index in range(shards)]
    for start in range(0, shards, _KEYS_PER_CALL):
        transport.remove(keys[start : start + _KEYS_PER_CALL], timeout_seconds)


def _extent(document: Document) -> tuple[int | None, int]:
    """Return the size of the object behind its first document, and its number of shards."""
    if document.outcome is not Outcome.OK:
        return None, 0
    if not document.is_json:
        return len(document.content), 0
    try:
        manifest = parse_manifest(document.content)
    except ManifestError:
        return None, 0
    return manifest.size_bytes, manifest.shards
