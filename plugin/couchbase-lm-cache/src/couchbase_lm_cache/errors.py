"""Every error this package raises on purpose.

CouchbaseLMCacheError
├── SettingsError        a setting is unknown, missing, contradictory or out of range
├── CredentialsError     the username or password cannot be read
├── ConnectError         the cluster, bucket or collection cannot be used
├── ManifestError        a document that should be a manifest is not one
└── BufferRevokedError   the L1 memory of a task may no longer be touched
"""

from __future__ import annotations


class CouchbaseLMCacheError(Exception):
    """Base of all errors of this package."""


class SettingsError(CouchbaseLMCacheError, ValueError):
    """A setting is unknown, missing, contradictory or out of range; the message names it."""


class CredentialsError(CouchbaseLMCacheError):
    """The username or password file is missing, unreadable or empty."""


class ConnectError(CouchbaseLMCacheError):
    """Couchbase cannot be reached or used; the message lists the likely causes."""


class ManifestError(CouchbaseLMCacheError, ValueError):
    """A document marked as a manifest does not hold one."""


class BufferRevokedError(CouchbaseLMCacheError):
    """The task that owned this memory has ended: nobody may read or write it any more."""
