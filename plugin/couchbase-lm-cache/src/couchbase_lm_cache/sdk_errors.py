"""What an exception of the Couchbase SDK means for one document, and for a connection.

The SDK's classes mislead in places: a collection that is missing or not permitted shows as a timeout
with a retry reason, and a bucket without rights as BucketNotFound. All timeout classes are siblings.
"""

from __future__ import annotations

from couchbase.exceptions import (
    AmbiguousTimeoutException,
    AuthenticationException,
    BucketNotFoundException,
    CasMismatchException,
    CouchbaseException,
    DocumentLockedException,
    DocumentNotFoundException,
    RequestCanceledException,
    TemporaryFailException,
    UnAmbiguousTimeoutException,
)

from couchbase_lm_cache import connect_reasons
from couchbase_lm_cache.transport import Outcome

_TIMEOUTS = (AmbiguousTimeoutException, UnAmbiguousTimeoutException)
_TEMPORARY = (TemporaryFailException, DocumentLockedException)
_BUSY = (*_TEMPORARY, RequestCanceledException)
_NO_SUCH_COLLECTION = "collection_outdated"
_DURABLE_WRITE = "sync_write_in_progress"


def outcome_of(error: Exception) -> Outcome:
    """Translate the failure of one operation."""
    if isinstance(error, (DocumentNotFoundException, CasMismatchException)):
        # A version that is gone was replaced by another writer: for the caller the old one is missing.
        return Outcome.MISSING
    if isinstance(error, (*_BUSY, RuntimeError)):
        # RuntimeError: this connection was closed meanwhile; another one may be there on the next attempt.
        return Outcome.BUSY
    if isinstance(error, AuthenticationException):
        return Outcome.DENIED
    if isinstance(error, _TIMEOUTS):
        return _outcome_of_timeout(_retry_reasons(error))
    return Outcome.REFUSED


def _outcome_of_timeout(retry_reasons: str) -> Outcome:
    if _NO_SUCH_COLLECTION in retry_reasons:
        return Outcome.DENIED
    return Outcome.BUSY if _DURABLE_WRITE in retry_reasons else Outcome.TIMEOUT


def is_temporary(result: object) -> bool:
    """Say whether the server asks to try again in a moment: it is short of memory, or has locked that document."""
    return isinstance(result, _TEMPORARY)


def why_not_connected(error: Exception, *, bucket: str, uses_tls: bool) -> str:
    """Explain a failed attempt to open the cluster and bucket, with everything the server tells alike.

    The message holds our own words only: the SDK's text may carry addresses and raw answers.
    """
    if isinstance(error, AuthenticationException):
        return connect_reasons.LOGIN_REFUSED
    if isinstance(error, BucketNotFoundException):
        return connect_reasons.bucket_refused(bucket)
    if isinstance(error, _TIMEOUTS):
        return connect_reasons.no_answer(bucket, uses_tls=uses_tls)
    return f"the Couchbase SDK reported {type(error).__name__}"


def _retry_reasons(error: CouchbaseException) -> str:
    reasons = error.error_context.retry_reasons if error.error_context else None
    return " ".join(map(str, reasons or ()))
