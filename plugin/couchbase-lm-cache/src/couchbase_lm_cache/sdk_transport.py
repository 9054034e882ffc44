"""The transport over the official Couchbase SDK.

The SDK opens one connection per node and ``Cluster`` object, handled by one thread on either side, so a
few Cluster objects take turns. Its synchronous API is used from our worker threads: it keeps the GIL off
its I/O thread. Values pass through as raw bytes with their flags; compression, tracing, metrics and
telemetry are off, as they cost time per document and say nothing about a cache.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.exceptions import CouchbaseException
from couchbase.options import (
    ClusterOptions,
    ClusterTimeoutOptions,
    ExistsMultiOptions,
    GetMultiOptions,
    GetOptions,
    RemoveMultiOptions,
    TLSVerifyMode,
    TouchMultiOptions,
    UpsertMultiOptions,
)
from couchbase.transcoder import Transcoder

from couchbase_lm_cache import connect_reasons
from couchbase_lm_cache.document_flags import BINARY_FLAGS, JSON_FLAGS, is_json
from couchbase_lm_cache.errors import BufferRevokedError, ConnectError
from couchbase_lm_cache.pauses import Pauses
from couchbase_lm_cache.sdk_errors import is_temporary, outcome_of, why_not_connected
from couchbase_lm_cache.sdk_limits import ShortLimit
from couchbase_lm_cache.sharding import checksum
from couchbase_lm_cache.transport import PROBE_KEYS, Age, Document, Outcome, ShardRead, ShardWrite, probe_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from couchbase.collection import Collection

    from couchbase_lm_cache.credentials import Credentials
    from couchbase_lm_cache.settings import CouchbaseLMCacheConfig

_CLUSTERS = 2
_PROBE_KEYS = tuple(map(probe_key, range(256)))
"""Of 16 nodes with equal shares, none is missed in all but one of a million clusters."""


class SdkTransport:
    """See :class:`couchbase_lm_cache.transport.Transport`; made by :func:`connect`.

    Attributes:
        notice: why it is used instead of the direct transport, if it is.
    """

    name = "sdk"

    def __init__(self, clusters: Sequence[Cluster], collections: Sequence[Collection]) -> None:
        self._clusters = list(clusters)
        self._turns = itertools.cycle(collections)
        self._closed = threading.Event()
        self._short_limit = ShortLimit()
        self.notice = ""

    def read(self, keys: Sequence[str], timeout_seconds: float, *, is_patient: bool = True) -> list[Document]:
        """Read whole documents."""
        results = self._repeat(
            lambda collection, left, limit: collection.get_multi(left, GetMultiOptions(timeout=limit, transcoder=_RAW)),
            keys,
            timeout_seconds,
            is_patient=is_patient,
        )
        return [_document(results[key]) for key in keys]

    def read_into(self, reads: Sequence[ShardRead], timeout_seconds: float) -> list[Outcome]:
        """Read documents and copy each into its place, after it has been checked in private memory."""
        documents = self.read([read.key for read in reads], timeout_seconds)
        return [_land(read, document) for read, document in zip(reads, documents, strict=True)]

    def write(
        self, writes: Sequence[ShardWrite], ttl_seconds: int, timeout_seconds: float, *, is_patient: bool = True
    ) -> list[Outcome]:
        """Copy each part out of L1 memory and write the copies."""
        try:
            values = {write.key: (write.buffer.copy(write.start, write.end), BINARY_FLAGS) for write in writes}
        except BufferRevokedError:
            return [Outcome.REVOKED] * len(writes)
        results = self._upsert(values, ttl_seconds, timeout_seconds, is_patient=is_patient)
        return [_written(results[write.key]) for write in writes]

    def write_json(
        self,
        documents: Sequence[tuple[str, bytes]],
        ttl_seconds: int,
        timeout_seconds: float,
        *,
        is_patient: bool = True,
    ) -> list[Outcome]:
        """Write JSON documents."""
        values = {key: (content, JSON_FLAGS) for key, content in documents}
        results = self._upsert(values, ttl_seconds, timeout_seconds, is_patient=is_patient)
        return [_written(results[key]) for key, _ in documents]

    def exists(self, keys: Sequence[str], timeout_seconds: float) -> list[Outcome]:
        """Say OK or MISSING for each key."""
        results = self._repeat(
            lambda collection, left, limit: collection.exists_multi(left, ExistsMultiOptions(timeout=limit)),
            keys,
            timeout_seconds,
        )
        return [_presence(results[key]) for key in keys]

    def probe(self, timeout_seconds: float) -> list[Outcome]:
        """Ask for so many documents that every data node is met: the SDK does not tell where they are."""
        return self.exists(_PROBE_KEYS, timeout_seconds)

    def age(self, key: str, timeout_seconds: float) -> Age:
        """Read a document together with the time it has left."""
        options = GetOptions(timeout=_timeout(timeout_seconds), transcoder=_RAW, with_expiry=True)
        try:
            result = next(self._turns).get(key, options)
        except (CouchbaseException, RuntimeError) as error:
            return Age(Document(outcome_of(error)))
        expiry = result.expiry_time
        return Age(_document(result), expiry.timestamp() - time.time() if expiry else None)

    def touch(self, keys: Sequence[str], ttl_seconds: int, timeout_seconds: float) -> list[Outcome]:
        """Give documents a new lifetime."""
        lifetime = _expiry(ttl_seconds)
        results = self._repeat(
            lambda collection, left, limit: collection.touch_multi(left, lifetime, TouchMultiOptions(timeout=limit)),
            keys,
            timeout_seconds,
        )
        return [_written(results[key]) for key in keys]

    def remove(
        self, keys: Sequence[str], timeout_seconds: float, cas: int = 0, *, is_patient: bool = True
    ) -> list[Outcome]:
        """Remove documents; with ``cas``, only the version that was read."""
        version = {"cas": cas} if cas else {}
        results = self._repeat(
            lambda collection, left, limit: collection.remove_multi(left, RemoveMultiOptions(timeout=limit, **version)),
            keys,
            timeout_seconds,
            is_patient=is_patient,
        )
        return [_written(results[key]) for key in keys]

    def collection(self) -> Collection:
        """Return the SDK's collection, for what is no part of a transport."""
        return next(self._turns)

    def close(self) -> None:
        """Disconnect; calls under way end as failures."""
        self._closed.set()
        for cluster in self._clusters:
            cluster.close()

    def _upsert(
        self, values: dict[str, tuple[bytes, int]], ttl_seconds: int, timeout_seconds: float, *, is_patient: bool
    ) -> dict[str, Any]:
        lifetime = _expiry(ttl_seconds)
        return self._repeat(
            lambda collection, left, limit: collection.upsert_multi(
                {key: values[key] for key in left},
                UpsertMultiOptions(timeout=limit, transcoder=_RAW, expiry=lifetime),
            ),
            list(values),
            timeout_seconds,
            is_patient=is_patient,
        )

    def _repeat(
        self,
        operation: Callable[[Collection, list[str], timedelta], Any],
        keys: Sequence[str],
        timeout_seconds: float,
        *,
        is_patient: bool = True,
    ) -> dict[str, Any]:
        """Call for ``keys``, and again for those that the server wants to be asked for later, until time is up.

        A caller that is not patient gets the results of the first call, which is short while servers refuse.
        """
        if not is_patient:
            limit_seconds, asked = self._short_limit.of(timeout_seconds), _unique(keys)
            results = self._call(lambda collection: operation(collection, asked, _timeout(limit_seconds)), asked)
            self._short_limit.learn(limit_seconds, [_written(result) for result in results.values()])
            return results
        deadline = time.monotonic() + timeout_seconds
        pauses = Pauses(deadline, self._closed)
        results = {}
        left = _unique(keys)
        while left:
            asked, limit = left, _timeout(deadline - time.monotonic())
            results |= self._call(lambda collection: operation(collection, asked, limit), asked)  # noqa: B023 - at once
            left = [key for key in asked if is_temporary(results[key])]
            if left and not pauses.wait():
                break
        return results

    def _call(self, operation: Callable[[Collection], Any], keys: Sequence[str]) -> dict[str, Any]:
        """Run one multi-document call; a failure of the call is a failure of each document."""
        if not keys:
            return {}
        try:
            outcome = operation(next(self._turns))
        except (CouchbaseException, RuntimeError) as error:
            return dict.fromkeys(keys, error)
        return {**outcome.exceptions, **outcome.results}


def connect(settings: CouchbaseLMCacheConfig, credentials: Credentials, timeout_seconds: float) -> SdkTransport:
    """Connect, open the bucket and prove that the collection answers.

    Raises:
        ConnectError: any of that failed; the message lists what the cause may be.
    """
    _check_ca_file(settings)
    deadline = time.monotonic() + timeout_seconds
    clusters: list[Cluster] = []
    collections: list[Collection] = []
    with ExitStack() as undo:
        try:
            for _ in range(_CLUSTERS):
                cluster = Cluster.connect(settings.connection_string, _options(settings, credentials, timeout_seconds))
                clusters.append(cluster)
                undo.callback(cluster.close)
                bucket = cluster.bucket(settings.bucket_name)
                collections.append(bucket.scope(settings.scope_name).collection(settings.collection_name))
        except CouchbaseException as error:
            uses_tls = settings.connection_string.startswith("couchbases://")
            raise ConnectError(why_not_connected(error, bucket=settings.bucket_name, uses_tls=uses_tls)) from None
        transport = SdkTransport(clusters, collections)
        outcome = transport.exists(PROBE_KEYS[:1], max(0.3, deadline - time.monotonic()))[0]
        if outcome not in (Outcome.OK, Outcome.MISSING):
            raise ConnectError(connect_reasons.collection_unusable(outcome, settings))
        undo.pop_all()
    return transport


def _check_ca_file(settings: CouchbaseLMCacheConfig) -> None:
    # The SDK tells an unreadable file and an untrusted certificate alike, as a timeout.
    if settings.tls_ca_file and not os.access(settings.tls_ca_file, os.R_OK):
        raise ConnectError(connect_reasons.ca_file_unreadable(settings.tls_ca_file))


def _options(settings: CouchbaseLMCacheConfig, credentials: Credentials, timeout_seconds: float) -> ClusterOptions:
    limit = timedelta(seconds=timeout_seconds)
    trust = {"cert_path": settings.tls_ca_file} if settings.tls_ca_file else {}
    return ClusterOptions(
        PasswordAuthenticator(credentials.username, credentials.password, **trust),
        timeout_options=ClusterTimeoutOptions(
            bootstrap_timeout=limit,
            resolve_timeout=min(limit, timedelta(seconds=5)),
            connect_timeout=min(limit, timedelta(seconds=5)),
            kv_timeout=timedelta(seconds=settings.kv_timeout_seconds),
        ),
        tls_verify=TLSVerifyMode.NONE if settings.tls_skip_verify else TLSVerifyMode.PEER,
        enable_compression=False,
        enable_tracing=False,
        enable_metrics=False,
        enable_orphan_reporting=False,
        enable_app_telemetry=False,
        enable_mutation_tokens=False,
    )


class _RawTranscoder(Transcoder):  # type: ignore[misc]
    """Passes (bytes, flags) through: the storage format decides both."""

    def encode_value(self, value: tuple[bytes, int]) -> tuple[bytes, int]:
        return value

    def decode_value(self, value: bytes, flags: int) -> tuple[bytes, int]:
        return value, flags


_RAW = _RawTranscoder()


def _document(result: Any) -> Document:
    if isinstance(result, Exception):
        return Document(outcome_of(result))
    content, flags = result.value
    return Document(Outcome.OK, content or b"", is_json(flags), result.cas)


def _land(read: ShardRead, document: Document) -> Outcome:
    if document.outcome is not Outcome.OK:
        return document.outcome
    if len(document.content) != read.end - read.start:
        return Outcome.WRONG_LENGTH
    if document.is_json or (read.xxh3 is not None and checksum(document.content) != read.xxh3):
        return Outcome.CORRUPT
    try:
        read.buffer.fill(read.start, document.content)
    except BufferRevokedError:
        return Outcome.REVOKED
    return Outcome.OK


def _presence(result: Any) -> Outcome:
    if isinstance(result, Exception):
        return outcome_of(result)
    return Outcome.OK if result.exists else Outcome.MISSING


def _written(result: Any) -> Outcome:
    return outcome_of(result) if isinstance(result, Exception) else Outcome.OK


def _unique(keys: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(keys))


def _timeout(seconds: float) -> timedelta:
    # The SDK takes 0 for "use the default"; a call that has no time left gets the smallest honest limit.
    return timedelta(seconds=max(seconds, 0.001))


def _expiry(ttl_seconds: int) -> timedelta:
    return timedelta(seconds=ttl_seconds)
