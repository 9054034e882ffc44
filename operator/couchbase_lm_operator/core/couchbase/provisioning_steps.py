"""The writes that provisioning can ask of Couchbase, as data. Pure.

``core.couchbase.provisioning`` lists them, ``io.couchbase`` executes them in order and stops at the first that
fails. Each is safe to repeat: a pass that died between two of them is continued by the next. Sizes are
bytes, durations seconds.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CreateBucket:
    """Create the bucket; only listed together with a record of the intent, which must be saved first."""

    bucket: str
    bucket_type: str
    quota_per_node_bytes: int
    replicas: int
    eviction_policy: str
    max_ttl_seconds: int


@dataclass(frozen=True)
class EditBucketQuota:
    """Change the quota of our own bucket, guarded by its UUID."""

    bucket: str
    bucket_uuid: str
    quota_per_node_bytes: int


@dataclass(frozen=True)
class CreateScope:
    """Create the scope, the cache's or the bucket's marker; one that exists already is success."""

    bucket: str
    bucket_uuid: str
    scope: str


@dataclass(frozen=True)
class CreateCollection:
    """Create the collection; one that exists already is success."""

    bucket: str
    bucket_uuid: str
    scope: str
    collection: str


@dataclass(frozen=True)
class EnsureManifest:
    """Wait until every data node knows the current collections manifest: a role on one needs that."""

    bucket: str
    bucket_uuid: str


@dataclass(frozen=True)
class PutUser:
    """Create or replace the user with exactly these roles, this mark and the password of the Secret."""

    user: str
    mark: str
    roles: tuple[str, ...]


@dataclass(frozen=True)
class DeleteUser:
    """Delete the user, if its mark still is the one seen."""

    user: str
    mark: str


@dataclass(frozen=True)
class DeleteBucket:
    """Delete our own bucket, guarded by its UUID."""

    bucket: str
    bucket_uuid: str


Step = (
    CreateBucket
    | EditBucketQuota
    | CreateScope
    | CreateCollection
    | EnsureManifest
    | PutUser
    | DeleteUser
    | DeleteBucket
)
