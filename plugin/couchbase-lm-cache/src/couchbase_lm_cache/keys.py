"""Document keys: how one LMCache object and its shards are named in Couchbase.

``<key_prefix><model>@0x<kv_rank:08x>@<object_group_id:x>@<chunk_hash>[@<cache_salt>]`` and, for the
parts of a split object, ``<key>::shard::<n>``. Pure: imports neither LMCache nor the Couchbase SDK.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

MAX_KEY_BYTES = 246
"""Couchbase Server's limit of a document key in a named collection, in UTF-8 bytes.

It is 250 in the default collection alone; elsewhere the server keeps room for the collection's number
(kv_engine, ``MaxCollectionsLogicalKeyLen``).
"""

MAX_SHARDS = 1_000_000
"""Shard numbers take at most six digits, which the room kept for them relies on."""

_SHARD_INFIX = "::shard::"
_SHARD = re.compile(r"::shard::[0-9]{1,6}\Z")
_OBJECT = re.compile(
    r"(?P<model>[^@]*)@0x(?P<rank>[0-9a-f]{8,})@(?P<group>[0-9a-f]+)@(?P<hash>(?:[0-9a-f]{2})+)(?:@(?P<salt>[^@/\\\0]+))?\Z",
    re.DOTALL,
)
_MAX_BASE_KEY_BYTES = MAX_KEY_BYTES - len(_SHARD_INFIX) - 6


def object_key(
    key_prefix: str,
    *,
    model_name: str,
    kv_rank: int,
    object_group_id: int,
    chunk_hash: bytes,
    cache_salt: str = "",
) -> str:
    """Name the document that stands for one object of LMCache's server; see :func:`document_key`."""
    salt = f"@{cache_salt}" if cache_salt else ""
    return document_key(key_prefix, f"{model_name}@0x{kv_rank:08x}@{object_group_id:x}@{chunk_hash.hex()}{salt}")


def document_key(key_prefix: str, name: str) -> str:
    """Put the prefix before an object's name.

    A name that would leave no room for a shard number is replaced by ``<key_prefix>#<sha256>`` (or
    ``#<sha256>`` when the prefix itself is too long), which every server computes alike. So is a name
    that is no valid UTF-8: salts come from requests and may hold lone surrogates.
    """
    key = key_prefix + name
    encoded = key.encode("utf-8", "surrogatepass")
    if len(encoded) <= _MAX_BASE_KEY_BYTES and _is_utf8(key):
        return key
    digest = "#" + hashlib.sha256(encoded).hexdigest()
    readable = _is_utf8(key_prefix) and len((key_prefix + digest).encode()) <= _MAX_BASE_KEY_BYTES
    return key_prefix + digest if readable else digest


class KeyParts(NamedTuple):
    """What a document key says about the object stored under it."""

    chunk_hash: bytes
    model_name: str
    kv_rank: int
    object_group_id: int
    cache_salt: str


def parse_object_key(key_prefix: str, key: str) -> KeyParts | None:
    """Read back what :func:`object_key` wrote.

    Returns:
        None for the key of a shard, for one that was replaced by a hash, and for any other document.
    """
    if not key.startswith(key_prefix) or _SHARD.search(key):
        return None
    match = _OBJECT.match(key, len(key_prefix))
    if match is None:
        return None
    return KeyParts(
        bytes.fromhex(match["hash"]),
        match["model"],
        int(match["rank"], 16),
        int(match["group"], 16),
        match["salt"] or "",
    )


def shard_key(key: str, index: int) -> str:
    """Name the ``index``-th part of the object stored under ``key``."""
    if not 0 <= index < MAX_SHARDS:
        raise ValueError(f"shard number {index} is outside 0..{MAX_SHARDS - 1}")
    return f"{key}{_SHARD_INFIX}{index}"


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
