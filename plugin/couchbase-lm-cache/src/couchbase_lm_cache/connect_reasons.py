"""Why Couchbase cannot be used: the words for what a server tells alike, the same for every transport.

The texts are ours alone: answers of a server may carry addresses and raw content.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from couchbase_lm_cache.transport import Outcome

if TYPE_CHECKING:
    from couchbase_lm_cache.settings import CouchbaseLMCacheConfig

LOGIN_REFUSED = "Couchbase refused the username or password (a new user may take some seconds to reach every node)"


def bucket_refused(bucket: str) -> str:
    """Explain a bucket that cannot be opened."""
    return (
        f"bucket {bucket} cannot be opened: it does not exist, is not on every node yet, or the user has no right on it"
    )


def no_answer(bucket: str, *, uses_tls: bool) -> str:
    """Explain an attempt that nobody answered in time."""
    trust = "its certificate is not signed by the CA in tls_ca_file, " if uses_tls else ""
    return (
        f"no answer in time: the address or port is wrong, a firewall is in between, {trust}the cluster is not "
        f"initialised or still warming up, or the user has no right on bucket {bucket}"
    )


def collection_unusable(outcome: Outcome, settings: CouchbaseLMCacheConfig) -> str:
    """Explain a collection that does not answer."""
    place = f"{settings.bucket_name}.{settings.scope_name}.{settings.collection_name}"
    if outcome is Outcome.DENIED:
        return f"collection {place} does not exist, or the user lacks the roles data_reader and data_writer on it"
    return f"collection {place} does not answer ({outcome.value}): a data node may be down or warming up"


def ca_file_unreadable(path: str) -> str:
    """Explain a CA file that is no help."""
    return f"tls_ca_file {path} cannot be read, or holds no certificate"
