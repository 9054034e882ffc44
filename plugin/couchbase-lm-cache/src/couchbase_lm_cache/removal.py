"""Removal of objects: the manifest first, so that nobody finds an object that is half gone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from couchbase_lm_cache.errors import ManifestError
from couchbase_lm_cache.keys import shard_key
from couchbase_lm_cache.sharding import parse_manifest
from couchbase_lm_cache.transport import Document, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from couchbase_lm_cache.connection import Connection
    from couchbase_lm_cache.transport import Transport

_KEYS_PER_CALL = 16
_LEAST_FOR_A_TURN_SECONDS = 0.05


def remove_objects(connection: Connection, keys: Sequence[str]) -> list[int | None]:
    """Remove objects with their shards, until all are removed or Couchbase is found not to answer.

    Returns:
        For each key the size in bytes of the object that was removed; None where there was none or it
        may still be there. Shards that could not be removed are unreachable and expire or are evicted.
    """
    sizes: list[int | None] = []
    for start in range(0, len(keys), _KEYS_PER_CALL):
        batch = keys[start : start + _KEYS_PER_CALL]
        transport = connection.transport()
        sizes += [None] * len(batch) if transport is None else _remove_batch(connection, transport, batch)
    return sizes


def _remove_batch(connection: Connection, transport: Transport, keys: Sequence[str]) -> list[int | None]:
    # One that could not be read stays: nobody would know its shards any more.
    extents = {
        key: _extent(document)
        for key, document in _read(connection, transport, keys).items()
        if document.outcome is Outcome.OK
    }
    removed = dict(zip(extents, _remove(connection, transport, list(extents)), strict=True))
    for key, (_, shards) in extents.items():
        if removed[key] is Outcome.OK:
            parts = [shard_key(key, index) for index in range(shards)]
            for start in range(0, shards, _KEYS_PER_CALL):
                _remove(connection, transport, parts[start : start + _KEYS_PER_CALL])
    return [extents[key][0] if removed.get(key) is Outcome.OK else None for key in keys]


def _remove(connection: Connection, transport: Transport, keys: Sequence[str]) -> list[Outcome]:
    if connection.transport() is not transport:
        return [Outcome.TIMEOUT] * len(keys)
    outcomes: dict[str, Outcome] = dict.fromkeys(keys, Outcome.CONGESTED)
    for timeout_seconds in _turns(connection):
        left = [key for key, outcome in outcomes.items() if outcome is Outcome.CONGESTED]
        if not left:
            break
        began = time.monotonic()
        answers = transport.remove(left, timeout_seconds)
        connection.note_write(answers, began)
        outcomes.update(zip(left, answers, strict=True))
    return [outcomes[key] for key in keys]


def _read(connection: Connection, transport: Transport, keys: Sequence[str]) -> dict[str, Document]:
    documents = dict.fromkeys(keys, Document(Outcome.CONGESTED))
    for timeout_seconds in _turns(connection):
        left = [key for key, document in documents.items() if document.outcome is Outcome.CONGESTED]
        if not left:
            break
        began = time.monotonic()
        answers = transport.read(left, timeout_seconds)
        connection.note([document.outcome for document in answers], began)
        documents.update(zip(left, answers, strict=True))
    return documents


def _turns(connection: Connection) -> Iterator[float]:
    """Give the limits, in seconds, of calls that together take no longer than one may: it is LMCache that waits."""
    deadline = time.monotonic() + connection.call_timeout_seconds
    while (left_seconds := deadline - time.monotonic()) > _LEAST_FOR_A_TURN_SECONDS:
        yield left_seconds


def _extent(document: Document) -> tuple[int | None, int]:
    """Return the size of the object behind its first document, and its number of shards."""
    if not document.is_json:
        return len(document.content), 0
    try:
        manifest = parse_manifest(document.content)
    except ManifestError:
        return None, 0
    return manifest.size_bytes, manifest.shards
