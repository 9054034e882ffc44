"""Lists stored objects with Couchbase's range scan, which needs no index and no role but ``data_reader``.

A scan tells the keys of all documents in a range, each vBucket in its own order, so a page is made of the
smallest keys after the cursor: the cursor is simply the last key of the page before. It stays valid for
ever, on every server, whatever is stored or removed meanwhile. A scan passes all keys that remain (no
values), so what it found for the pages to come is kept for a while: one scan makes many pages.
"""

from __future__ import annotations

import base64
import binascii
import heapq
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from couchbase_lm_cache.errors import ConnectError, ManifestError
from couchbase_lm_cache.keys import KeyParts, parse_object_key
from couchbase_lm_cache.sharding import parse_manifest
from couchbase_lm_cache.transport import Document, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from couchbase_lm_cache.connection import Connection
    from couchbase_lm_cache.credentials import CredentialSource
    from couchbase_lm_cache.settings import CouchbaseLMCacheConfig

MAX_PAGE_SIZE = 1000
"""Larger pages are cut to this; the cursor leads on."""

_PAGES_PER_SCAN = 16
_KEPT_SECONDS = 60.0
_MANIFESTS_PER_CALL = 16


@dataclass(frozen=True)
class ListedObject:
    """One stored object and the bytes it fills in L1 memory."""

    parts: KeyParts
    size_bytes: int


@dataclass(frozen=True)
class Page:
    """Some objects in the order of their document keys; ``cursor`` is None on the last page."""

    objects: list[ListedObject]
    cursor: str | None


@dataclass(frozen=True)
class _Found:
    """What a scan found for the pages after ``after``: keys in order, and whether there are more behind them."""

    prefix: str
    after: str
    keys: list[str]
    is_last: bool
    until: float


class Lister:
    """Makes pages; a scan connects anew, as listing is rare and the connection of the cache may be direct.

    Args:
        settings: where to look, and the prefix of the keys.
        credentials: read for every scan.
        connection: reads the sizes of the objects that were found.
    """

    def __init__(self, settings: CouchbaseLMCacheConfig, credentials: CredentialSource, connection: Connection) -> None:
        self._settings = settings
        self._credentials = credentials
        self._connection = connection
        self._lock = threading.Lock()
        self._found: _Found | None = None

    def page(self, model_name: str | None, page_size: int, cursor: str | None) -> Page:
        """List up to ``page_size`` objects after ``cursor``; fewer where some vanished meanwhile.

        Raises:
            ValueError: ``page_size`` is not positive, or ``cursor`` is malformed.
            NotImplementedError: the bucket cannot be scanned.
            ConnectError: Couchbase cannot be used, or the scan failed.
        """
        if page_size <= 0:
            raise ValueError(f"page_size is {page_size}: it must be positive")
        prefix = self._settings.key_prefix + ("" if model_name is None else f"{model_name}@")
        after = prefix if cursor is None else _last_key(cursor, prefix)
        limit = min(page_size, MAX_PAGE_SIZE)
        with self._lock:
            found = self._kept(prefix, after, limit) if cursor is not None else None
            if found is None:
                found = self._scan(prefix, after, limit)
            shown, rest = found.keys[:limit], found.keys[limit:]
            if shown and rest:
                self._found = _Found(prefix, shown[-1], rest, found.is_last, found.until)
            else:
                self._found = None
        is_last = found.is_last and not rest
        return Page(self._with_sizes(shown), None if is_last or not shown else _cursor(shown[-1]))

    def _kept(self, prefix: str, after: str, limit: int) -> _Found | None:
        """Return what an earlier scan found for exactly this page."""
        found = self._found
        if found is None or (found.prefix, found.after) != (prefix, after) or time.monotonic() > found.until:
            return None
        return found if found.is_last or len(found.keys) >= limit else None

    def _scan(self, prefix: str, after: str, limit: int) -> _Found:
        # Loads the SDK, which takes 17 MiB of memory: only where something is listed.
        from couchbase_lm_cache.scanning import scan  # noqa: PLC0415

        scanned = scan(self._settings, self._credentials.read(), prefix, after)
        wanted = (key for key in scanned if parse_object_key(self._settings.key_prefix, key) is not None)
        most = limit * _PAGES_PER_SCAN
        # One more than is kept, to know whether others follow.
        keys = heapq.nsmallest(most + 1, wanted, key=str.encode)
        return _Found(prefix, after, keys[:most], len(keys) <= most, time.monotonic() + _KEPT_SECONDS)

    def _with_sizes(self, keys: Sequence[str]) -> list[ListedObject]:
        listed = []
        for start in range(0, len(keys), _MANIFESTS_PER_CALL):
            batch = keys[start : start + _MANIFESTS_PER_CALL]
            transport = self._connection.transport()
            if transport is None:
                raise ConnectError("Couchbase is not available")
            for key, document in zip(batch, transport.read(batch, self._connection.call_timeout_seconds), strict=True):
                parts, size = parse_object_key(self._settings.key_prefix, key), _size_bytes(document)
                if parts is not None and size is not None:
                    listed.append(ListedObject(parts, size))
        return listed


def _size_bytes(document: Document) -> int | None:
    """Return the size of the object behind its first document; None where there is none (any more)."""
    if document.outcome is Outcome.MISSING:
        return None
    if document.outcome is not Outcome.OK:
        raise ConnectError(f"the manifest of an object could not be read: {document.outcome.value}")
    if not document.is_json:
        return len(document.content)
    try:
        return parse_manifest(document.content).size_bytes
    except ManifestError:
        return None


def _cursor(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode()


def _last_key(cursor: str, prefix: str) -> str:
    try:
        key = base64.b64decode(cursor, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise ValueError("cursor is malformed: pass next_page_token of the page before unchanged") from None
    if not key.startswith(prefix):
        raise ValueError("cursor belongs to another listing: pass it with the same model_name")
    return key
