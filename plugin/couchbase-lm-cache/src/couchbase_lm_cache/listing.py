"""Lists stored objects with Couchbase's range scan, which needs no index and no role but ``data_reader``.

A scan tells the keys of all documents in a range, each data node in its own order, so a page is made of
the smallest keys after the cursor: the cursor is simply the last key of the page before. It stays valid
for ever, on every server, whatever is stored or removed meanwhile; the price is one scan of the remaining
keys (no values) for each page. Couchbase supports range scans from 7.6 on, and not in ephemeral buckets.
"""

from __future__ import annotations

import base64
import binascii
import heapq
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from couchbase.exceptions import CouchbaseException, FeatureUnavailableException
from couchbase.kv_range_scan import RangeScan, ScanTerm
from couchbase.options import ScanOptions

from couchbase_lm_cache import sdk_transport
from couchbase_lm_cache.errors import ConnectError, ManifestError
from couchbase_lm_cache.keys import KeyParts, parse_object_key
from couchbase_lm_cache.sharding import parse_manifest
from couchbase_lm_cache.transport import Document, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from couchbase.collection import Collection

    from couchbase_lm_cache.connection import Connection
    from couchbase_lm_cache.credentials import CredentialSource
    from couchbase_lm_cache.settings import CouchbaseLMCacheConfig

MAX_PAGE_SIZE = 1000
"""Larger pages are cut to this; the cursor leads on."""

_SCAN_TIMEOUT_SECONDS = 60.0
_MANIFESTS_PER_CALL = 16
_HIGHEST = "\U0010ffff"
_UNSUPPORTED = (
    "this bucket cannot be scanned: range scans need Couchbase Server 7.6 or later and a bucket of the type "
    "Couchbase (ephemeral buckets have none)"
)


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


class Lister:
    """Makes pages; each connects anew, as listing is rare and the connection of the cache may be direct.

    Args:
        settings: where to look, and the prefix of the keys.
        credentials: read for every page.
        connection: reads the sizes of the objects that were found.
    """

    def __init__(self, settings: CouchbaseLMCacheConfig, credentials: CredentialSource, connection: Connection) -> None:
        self._settings = settings
        self._credentials = credentials
        self._connection = connection

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
        with self._collection() as collection:
            # One more than the page, to know whether another one follows.
            keys = heapq.nsmallest(limit + 1, self._scan(collection, prefix, after), key=str.encode)
        shown = keys[:limit]
        return Page(self._with_sizes(shown), _cursor(shown[-1]) if len(keys) > limit else None)

    @contextmanager
    def _collection(self) -> Iterator[Collection]:
        limit = self._settings.connect_timeout_seconds
        transport = sdk_transport.connect(self._settings, self._credentials.read(), limit)
        try:
            yield transport.collection()
        finally:
            transport.close()

    def _scan(self, collection: Collection, prefix: str, after: str) -> Iterator[str]:
        between = RangeScan(ScanTerm(after, exclusive=True) if after else None, ScanTerm(prefix + _HIGHEST))
        options = ScanOptions(ids_only=True, timeout=timedelta(seconds=_SCAN_TIMEOUT_SECONDS))
        try:
            for result in collection.scan(between, options):
                if parse_object_key(self._settings.key_prefix, result.id) is not None:
                    yield result.id
        except FeatureUnavailableException:
            raise NotImplementedError(_UNSUPPORTED) from None
        except CouchbaseException as error:
            raise ConnectError(f"the scan of the collection failed: the SDK reported {type(error).__name__}") from None

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
