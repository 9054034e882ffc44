"""Opens the direct transport, or explains why it cannot be opened."""

from __future__ import annotations

import ssl
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from couchbase_lm_cache import connect_reasons
from couchbase_lm_cache.direct.addresses import parse_connection_string
from couchbase_lm_cache.direct.session import BucketRefusedError, CollectionRefusedError, LoginRefusedError
from couchbase_lm_cache.direct.stream import tls_context
from couchbase_lm_cache.direct.topology import SESSION_ERRORS, Topology
from couchbase_lm_cache.direct.transport import DirectTransport
from couchbase_lm_cache.direct.wire import ProtocolError
from couchbase_lm_cache.errors import ConnectError
from couchbase_lm_cache.transport import PROBE_KEYS, Outcome

if TYPE_CHECKING:
    from couchbase_lm_cache.credentials import Credentials
    from couchbase_lm_cache.settings import CouchbaseLMCacheConfig

_ATTEMPT_PAUSE_SECONDS = 0.25


def connect(settings: CouchbaseLMCacheConfig, credentials: Credentials, timeout_seconds: float) -> DirectTransport:
    """Connect, open the bucket and prove that the collection answers.

    Raises:
        ConnectError: any of that failed; the message lists what the cause may be.
    """
    deadline = time.monotonic() + timeout_seconds
    address = parse_connection_string(settings.connection_string)
    topology = Topology(settings, credentials, address, _tls(settings, uses_tls=address.uses_tls))
    with ExitStack() as undo:
        undo.callback(topology.close)
        _bootstrap(topology, settings, deadline, uses_tls=address.uses_tls)
        transport = DirectTransport(topology)
        outcome = transport.exists(PROBE_KEYS[:1], max(0.3, deadline - time.monotonic()))[0]
        if outcome not in (Outcome.OK, Outcome.MISSING):
            raise ConnectError(connect_reasons.collection_unusable(outcome, settings))
        undo.pop_all()
    return transport


def _bootstrap(topology: Topology, settings: CouchbaseLMCacheConfig, deadline: float, *, uses_tls: bool) -> None:
    """Try until something is certain or time is up: a bucket that warms up refuses connections for a while."""
    while (failure := _try(topology, deadline)) is not None:
        if isinstance(failure, CollectionRefusedError):
            raise ConnectError(connect_reasons.collection_unusable(Outcome.DENIED, settings))
        is_certain = isinstance(failure, (LoginRefusedError, ssl.SSLCertVerificationError))
        if is_certain or time.monotonic() + _ATTEMPT_PAUSE_SECONDS >= deadline:
            raise ConnectError(_why(failure, settings, uses_tls=uses_tls))
        time.sleep(_ATTEMPT_PAUSE_SECONDS)


def _try(topology: Topology, deadline: float) -> Exception | None:
    try:
        topology.bootstrap(deadline)
    except (CollectionRefusedError, *SESSION_ERRORS) as error:
        return error
    return None


def _why(error: Exception, settings: CouchbaseLMCacheConfig, *, uses_tls: bool) -> str:
    if isinstance(error, LoginRefusedError):
        return connect_reasons.LOGIN_REFUSED
    if isinstance(error, BucketRefusedError):
        return connect_reasons.bucket_refused(settings.bucket_name)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate was not accepted: {error.verify_message}"
    if isinstance(error, ProtocolError):
        return f"what answers is no Couchbase that the direct transport understands: {error}"
    return f"{connect_reasons.no_answer(settings.bucket_name, uses_tls=uses_tls)} (last: {error})"


def _tls(settings: CouchbaseLMCacheConfig, *, uses_tls: bool) -> ssl.SSLContext | None:
    if not uses_tls:
        return None
    try:
        return tls_context(settings.tls_ca_file, verify=not settings.tls_skip_verify)
    except OSError:
        raise ConnectError(connect_reasons.ca_file_unreadable(settings.tls_ca_file or "")) from None
