"""The mark by which a Couchbase user tells whose it is, and whose the bucket is. Pure.

Status can be lost (a restored backup, a deleted and re-created resource), the Couchbase user survives
it: its free ``name`` field carries cluster id, namespace and name of the resource, and the bucket's UUID
with a word that says whether the bucket was created by us or only used.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from couchbase_lm_operator.names import APP_NAME

_OWNS = "owns"
_USES = "uses"
_MARK = re.compile(rf"^(?P<base>{APP_NAME} [0-9a-f]+/[^ /]+/[^ /]+) (?P<relation>{_OWNS}|{_USES}) (?P<uuid>\S+)$")


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
