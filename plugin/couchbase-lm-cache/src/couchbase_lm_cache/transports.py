"""Chooses the transport: the direct one where it proves itself, the official SDK otherwise.

The SDK is the reference. With ``auto`` each writes documents that the other must read back, byte for byte
and with the right flags; at the first surprise, of whatever kind, the SDK is used, and says why in its
``notice``, which status, metrics and the log repeat.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from typing import TYPE_CHECKING

from couchbase_lm_cache import direct
from couchbase_lm_cache.buffers import GuardedBuffer
from couchbase_lm_cache.errors import ConnectError
from couchbase_lm_cache.sharding import checksum
from couchbase_lm_cache.transport import Outcome, ShardRead, ShardWrite

if TYPE_CHECKING:
    from collections.abc import Callable

    from couchbase_lm_cache.credentials import Credentials
    from couchbase_lm_cache.sdk_transport import SdkTransport
    from couchbase_lm_cache.settings import CouchbaseLMCacheConfig
    from couchbase_lm_cache.transport import Document, Transport

logger = logging.getLogger(__name__)

_CHECK_SIZES_BYTES = (0, 1, 4096, 1024 * 1024 - 3)
_CHECK_LIFETIME_SECONDS = 60
_CALL_TIMEOUT_SECONDS = 3.0


def open_transport(settings: CouchbaseLMCacheConfig, credentials: Credentials, timeout_seconds: float) -> Transport:
    """Connect by the transport that the settings name.

    Raises:
        ConnectError: Couchbase cannot be used; the message lists what the cause may be.
    """
    if settings.transport == "direct":
        return direct.connect(settings, credentials, timeout_seconds)
    if settings.transport == "sdk":
        return _connect_sdk(settings, credentials, timeout_seconds)
    return _open_checked(settings, credentials, timeout_seconds)


def _open_checked(settings: CouchbaseLMCacheConfig, credentials: Credentials, timeout_seconds: float) -> Transport:
    deadline = time.monotonic() + timeout_seconds
    reference = _connect_sdk(settings, credentials, timeout_seconds)
    candidate = None
    try:
        candidate = direct.connect(settings, credentials, max(0.5, deadline - time.monotonic()))
        surprise = compare(reference, candidate)
    except ConnectError as error:
        surprise = str(error)
    except Exception as error:  # the SDK works: whatever the other meets must not cost the cache
        logger.debug("The direct transport failed unexpectedly", exc_info=True)
        surprise = f"it failed unexpectedly ({type(error).__name__})"
    if candidate is not None and surprise is None:
        reference.close()
        return candidate
    if candidate is not None:
        candidate.close()
    reference.notice = surprise or ""
    return reference


def _connect_sdk(settings: CouchbaseLMCacheConfig, credentials: Credentials, timeout_seconds: float) -> SdkTransport:
    # The SDK takes 17 MiB of memory: where the direct transport is asked for, it is not even loaded.
    from couchbase_lm_cache import sdk_transport  # noqa: PLC0415

    return sdk_transport.connect(settings, credentials, timeout_seconds)


def compare(reference: Transport, candidate: Transport) -> str | None:
    """Let two transports read what the other wrote; return the first surprise, or None.

    The documents expire by themselves should their removal fail.
    """
    for writer, reader in ((candidate, reference), (reference, candidate)):
        for size in _CHECK_SIZES_BYTES:
            surprise = _compare_one(writer, reader, os.urandom(size))
            if surprise is not None:
                return f"what {writer.name} wrote, {reader.name} did not find as it was ({surprise})"
    return None


def _compare_one(writer: Transport, reader: Transport, content: bytes) -> str | None:
    limit = _CALL_TIMEOUT_SECONDS
    key = f"couchbase-lm-cache::check::{uuid.uuid4().hex}"
    source, target = (GuardedBuffer(memoryview(bytearray(data))) for data in (content, bytes(len(content))))
    manifest = b'{"check": "%s"}' % uuid.uuid4().hex.encode()
    stored = ShardWrite(key, source, 0, len(content))
    loaded = ShardRead(key, target, 0, len(content), checksum(content))
    steps: list[tuple[str, Callable[[], Outcome], Outcome]] = [
        ("write", lambda: writer.write([stored], _CHECK_LIFETIME_SECONDS, limit)[0], Outcome.OK),
        ("read", lambda: reader.read_into([loaded], limit)[0], Outcome.OK),
        ("bytes", lambda: _same(target.copy(0, len(content)) == content), Outcome.OK),
        ("write of JSON", lambda: writer.write_json([(key, manifest)], _CHECK_LIFETIME_SECONDS, limit)[0], Outcome.OK),
        ("read of JSON", lambda: _same(_is_manifest(reader.read([key], limit)[0], manifest)), Outcome.OK),
        ("existence", lambda: reader.exists([key], limit)[0], Outcome.OK),
        ("removal", lambda: reader.remove([key], limit)[0], Outcome.OK),
        ("absence", lambda: writer.exists([key], limit)[0], Outcome.MISSING),
    ]
    for name, step, expected in steps:
        outcome = step()
        if outcome is not expected:
            return f"{name}: {outcome.value}"
    return None


def _same(is_same: bool) -> Outcome:
    return Outcome.OK if is_same else Outcome.CORRUPT


def _is_manifest(document: Document, manifest: bytes) -> bool:
    return document.outcome is Outcome.OK and document.is_json and document.content == manifest
