"""The marks by which a Couchbase user and a bucket tell whose they are. Pure.

Status can be lost (a restored backup, a deleted and re-created resource), the Couchbase user survives
it: its free ``name`` field carries cluster id, namespace and name of the resource, and the bucket's UUID
with a word that says whether the bucket was created by us or only used.

A deleted resource takes its user along and may leave its bucket. So a bucket that was created by us carries
a mark of its own: an empty scope, named after a hash of the same facts. The UUID among them makes the marker
worthless in any other bucket, into which a restore or a copy may carry it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from couchbase_lm_operator.names import APP_NAME

_OWNS = "owns"
_USES = "uses"
_MARK = re.compile(rf"^(?P<base>{APP_NAME} [0-9a-f]+/[^ /]+/[^ /]+) (?P<relation>{_OWNS}|{_USES}) (?P<uuid>\S+)$")
_MARKER_PREFIX = "lmcb-owner-"
_MARKER_HASH_DIGITS = 16
_MARKER = re.compile(rf"{_MARKER_PREFIX}[0-9a-f]{{{_MARKER_HASH_DIGITS}}}")


@dataclass(frozen=True)
class Ownership:
    """A mark taken apart: who marked, which bucket, and whether that bucket was created by the marker."""

    base: str
    bucket_uuid: str
    owns_bucket: bool


def mark(cluster_id: str, namespace: str, name: str) -> str:
    """Return the part of the mark that names a resource; ``cluster_id`` is ``names.cluster_id``."""
    return f"{APP_NAME} {cluster_id}/{namespace}/{name}"


def full_mark(base: str, bucket_uuid: str, *, owns_bucket: bool) -> str:
    """Return the complete mark as it stands in the user's ``name`` field."""
    return f"{base} {_OWNS if owns_bucket else _USES} {bucket_uuid}"


def read(text: str) -> Ownership | None:
    """Return what a user's ``name`` field says, or None when it is no mark of this operator."""
    found = _MARK.match(text)
    if found is None:
        return None
    return Ownership(found["base"], found["uuid"], found["relation"] == _OWNS)


def marker_scope(base: str, bucket_uuid: str) -> str:
    """Return the name of the empty scope that marks the bucket with this UUID as created for ``base``."""
    facts = full_mark(base, bucket_uuid, owns_bucket=True)
    return _MARKER_PREFIX + hashlib.sha256(facts.encode()).hexdigest()[:_MARKER_HASH_DIGITS]


def is_marker_scope(scope: str) -> bool:
    """Say whether ``scope`` is named as a marker, whoever's: no resource may ask for such a scope."""
    return _MARKER.fullmatch(scope) is not None
