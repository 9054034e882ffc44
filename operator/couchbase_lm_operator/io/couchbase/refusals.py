"""What the server's answer to a write means: its status and fields, never its text, leave this file. Pure.

The texts are only searched for the few phrases that tell causes apart which share a status.
"""

from __future__ import annotations

from typing import Any

from couchbase_lm_operator.core.couchbase.provisioning_steps import (
    CreateBucket,
    CreateCollection,
    CreateScope,
    DeleteBucket,
    EditBucketQuota,
    PutUser,
    Step,
)
from couchbase_lm_operator.core.couchbase.provisioning_trouble import StepFailure, StepProblem

_BUSY_STATUSES = frozenset({409, 502, 503, 504})
_KNOWN_FIELDS = frozenset(
    {
        "name", "ramQuota", "ramQuotaMB", "replicaNumber", "evictionPolicy", "bucketType", "maxTTL", "storageBackend",
        "durabilityMinLevel", "numVBuckets", "compressionMode", "roles", "password", "groups", "uid",
    }
)  # fmt: skip


def failure_of(step: Step, status: int, content: Any) -> StepFailure:
    """Return why ``step`` failed, from an answer that is neither success nor 401 nor 403."""
    errors = field_errors(content)
    fields = tuple(sorted(errors.keys() & _KNOWN_FIELDS))
    problem = _by_status(step, status, errors)
    if problem is None and status in {400, 429}:
        problem = _by_fields(step, errors)
    return StepFailure(step, problem or StepProblem.UNEXPECTED, fields, _free_bytes(content), status)


def is_already_there(step: Step, status: int, content: Any) -> bool:
    """Say whether a scope or collection was refused only because it exists."""
    if status != 400 or not isinstance(step, CreateScope | CreateCollection):
        return False
    return any("already exists" in text for text in field_errors(content).values())


def field_errors(content: Any) -> dict[str, str]:
    """Return the server's complaints by field, ``_`` for the whole request, in all shapes it uses."""
    if isinstance(content, str):
        return {"_": content.lower()}
    if isinstance(content, list):
        return {"_": " ".join(str(one) for one in content).lower()}
    if not isinstance(content, dict):
        return {}
    inner = content.get("errors", content)
    if isinstance(inner, list | str):
        return field_errors(inner)
    if not isinstance(inner, dict):
        return {}
    return {str(key): str(text).lower() for key, text in inner.items()}


def _by_status(step: Step, status: int, errors: dict[str, str]) -> StepProblem | None:
    text = " ".join(errors.values())
    if status in _BUSY_STATUSES:
        return StepProblem.BUSY
    if status == 404:
        return StepProblem.VANISHED
    if status == 500 and isinstance(step, CreateBucket) and "still exist" in text:
        return StepProblem.BEING_DELETED
    if status == 500 and isinstance(step, DeleteBucket):
        return StepProblem.STILL_DELETING
    if status == 429:
        return StepProblem.KEYSPACE_LIMIT if isinstance(step, CreateScope | CreateCollection) else StepProblem.BUSY
    return None


def _by_fields(step: Step, errors: dict[str, str]) -> StepProblem | None:
    match step:
        case CreateBucket() | EditBucketQuota():
            return _bucket_problem(errors)
        case CreateScope() | CreateCollection():
            text = " ".join(errors.values())
            is_limit = "maximum number" in text or "limit" in text
            return StepProblem.KEYSPACE_LIMIT if is_limit else StepProblem.KEYSPACE_NAME
        case PutUser():
            return _user_problem(errors)
        case _:
            return None


def _bucket_problem(errors: dict[str, str]) -> StepProblem:
    if "name" in errors:
        taken = "already exists" in errors["name"] or "already in use" in errors["name"]
        return StepProblem.NAME_TAKEN if taken else StepProblem.BUCKET_NAME
    if "ramQuota" in errors or "ramQuotaMB" in errors:
        return StepProblem.QUOTA
    if "more than" in errors.get("_", "") and "bucket" in errors["_"]:
        return StepProblem.TOO_MANY_BUCKETS
    if "replicaNumber" in errors:
        return StepProblem.REPLICAS
    return StepProblem.BUCKET_SETTING


def _user_problem(errors: dict[str, str]) -> StepProblem | None:
    if "password" in errors:
        return StepProblem.PASSWORD_POLICY
    if "roles" in errors:
        return StepProblem.ROLES
    if "_" in errors or "uid" in errors:
        return StepProblem.USER_NAME
    return None


def _free_bytes(content: Any) -> int | None:
    summaries = content.get("summaries") if isinstance(content, dict) else None
    ram = summaries.get("ramSummary") if isinstance(summaries, dict) else None
    free = ram.get("free") if isinstance(ram, dict) else None
    return free if isinstance(free, int) and not isinstance(free, bool) else None
