"""Couchbase's range scan through the official SDK. Needs Couchbase Server 7.6 and a bucket that is not ephemeral."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from couchbase.exceptions import CouchbaseException, FeatureUnavailableException
from couchbase.kv_range_scan import RangeScan, ScanTerm
from couchbase.options import ScanOptions

from couchbase_lm_cache import sdk_transport
from couchbase_lm_cache.errors import ConnectError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from couchbase_lm_cache.credentials import Credentials
    from couchbase_lm_cache.settings import CouchbaseLMCacheConfig

_SCAN_TIMEOUT_SECONDS = 60.0
_HIGHEST = "\U0010ffff"
_UNSUPPORTED = (
    "this bucket cannot be scanned: range scans need Couchbase Server 7.6 or later and a bucket of the type "
    "Couchbase (ephemeral buckets have none)"
)


def scan(settings: CouchbaseLMCacheConfig, credentials: Credentials, prefix: str, after: str) -> Iterator[str]:
    """Give the keys of all documents that begin with ``prefix`` and come after ``after``, in no order.

    Raises:
        NotImplementedError: the bucket cannot be scanned.
        ConnectError: Couchbase cannot be used, or the scan failed.
    """
    transport = sdk_transport.connect(settings, credentials, settings.connect_timeout_seconds)
    between = RangeScan(ScanTerm(after, exclusive=True) if after else None, ScanTerm(prefix + _HIGHEST))
    options = ScanOptions(ids_only=True, timeout=timedelta(seconds=_SCAN_TIMEOUT_SECONDS))
    try:
        for result in transport.collection().scan(between, options):
            yield result.id
    except FeatureUnavailableException:
        raise NotImplementedError(_UNSUPPORTED) from None
    except CouchbaseException as error:
        raise ConnectError(f"the scan of the collection failed: the SDK reported {type(error).__name__}") from None
    finally:
        transport.close()
