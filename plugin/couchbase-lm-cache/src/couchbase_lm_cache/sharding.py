"""The storage format: how an object becomes documents, and when documents may become an object again.

An object is split into binary documents ``<key>::shard::<n>``, written first, and a small JSON manifest
at ``<key>``, written last. Without checksums, an object that fits one document is stored at ``<key>``
itself and the manifest holds exactly ``lmcache_shards`` and ``bytes``. With checksums there is always a
manifest, which carries the XXH3-64 of every shard and a hash of the object's shapes and dtypes as well.
Pure: imports neither LMCache nor the Couchbase SDK.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import xxhash

from couchbase_lm_cache.errors import ManifestError
from couchbase_lm_cache.keys import MAX_SHARDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True)
class ShardRange:
    """The bytes ``start`` to ``end`` (exclusive) of an object, stored as its ``index``-th shard."""

    index: int
    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        """Length of the shard."""
        return self.end - self.start


@dataclass(frozen=True)
class Manifest:
    """What the document at an object's key says about its shards.

    Attributes:
        shards: number of shard documents.
        size_bytes: length of the whole object.
        xxh3: XXH3-64 of every shard as 16 hexadecimal digits; None in the format without checksums.
        layout: hash of shapes and dtypes (:func:`layout_hash`); None in the format without checksums.
    """

    shards: int
    size_bytes: int
    xxh3: tuple[str, ...] | None = None
    layout: str | None = None

    def to_json(self) -> bytes:
        """Encode; equal manifests give equal bytes."""
        fields: dict[str, Any] = {"lmcache_shards": self.shards, "bytes": self.size_bytes}
        if self.xxh3 is not None:
            fields["xxh3"] = list(self.xxh3)
            fields["layout"] = self.layout
        return json.dumps(fields).encode()


_FIELDS = frozenset({"lmcache_shards", "bytes", "xxh3", "layout"})


def parse_manifest(content: bytes) -> Manifest:
    """Decode a manifest.

    Raises:
        ManifestError: it is not a manifest, or its numbers cannot be true.
    """
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        raise ManifestError("the manifest is not JSON, or nested without end") from None
    if not isinstance(fields, dict):
        raise ManifestError("the manifest is not a JSON object")
    if not fields.keys() <= _FIELDS:
        # Damage to two names would hide the checksums, and what they protect would be taken unseen.
        raise ManifestError("the manifest has fields that nobody knows")
    shards, size_bytes = _count(fields, "lmcache_shards"), _count(fields, "bytes")
    if shards > min(size_bytes, MAX_SHARDS) or (shards == 0) != (size_bytes == 0):
        raise ManifestError(f"{shards} shards cannot hold {size_bytes} bytes")
    sums, layout = fields.get("xxh3"), fields.get("layout")
    if sums is None and layout is None:
        return Manifest(shards, size_bytes)
    if not isinstance(sums, list) or len(sums) != shards or not all(isinstance(item, str) for item in sums):
        raise ManifestError("the manifest does not hold one checksum per shard")
    if not isinstance(layout, str):
        raise ManifestError("the manifest has checksums but no layout")
    return Manifest(shards, size_bytes, tuple(sums), layout)


def split(size_bytes: int, shard_size_bytes: int) -> list[ShardRange]:
    """Cut an object of ``size_bytes`` into shards of at most ``shard_size_bytes``.

    Raises:
        ValueError: there would be more shards than keys can number.
    """
    if shard_count(size_bytes, shard_size_bytes) > MAX_SHARDS:
        raise ValueError(f"{size_bytes} bytes in shards of {shard_size_bytes} bytes are more than {MAX_SHARDS} shards")
    starts = range(0, size_bytes, shard_size_bytes)
    return [ShardRange(i, start, min(start + shard_size_bytes, size_bytes)) for i, start in enumerate(starts)]


def shard_count(size_bytes: int, shard_size_bytes: int) -> int:
    """Return how many shards :func:`split` gives."""
    return -(-size_bytes // shard_size_bytes)


def checksum(content: bytes | memoryview) -> str:
    """Return the XXH3-64 of ``content`` as 16 hexadecimal digits."""
    return str(xxhash.xxh3_64_hexdigest(content))


def layout_hash(shapes: Iterable[Sequence[int]], dtypes: Iterable[str]) -> str:
    """Hash the shapes and dtypes of an object: equal bytes of another layout must not be taken for it."""
    described = json.dumps([[list(map(int, shape)) for shape in shapes], list(dtypes)])
    return hashlib.sha256(described.encode()).hexdigest()[:16]


def refusal(manifest: Manifest, *, size_bytes: int, layout: str, require_checksum: bool) -> str | None:
    """Say why the object behind ``manifest`` must not be loaded into a buffer, or None when it may.

    Args:
        manifest: what was stored.
        size_bytes: length of the buffer that waits for the object; it must match exactly.
        layout: :func:`layout_hash` of that buffer.
        require_checksum: whether objects without checksums are refused.
    """
    if manifest.size_bytes != size_bytes:
        return "size"
    if manifest.xxh3 is None:
        return "unverifiable" if require_checksum else None
    return "layout" if manifest.layout != layout else None


def _count(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ManifestError(f"the manifest has no valid {name}")
    return value
