"""Execution of provisioning steps over the management API, in order, up to the first that fails."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from couchbase_lm_operator.core.couchbase.provisioning_steps import (
    CreateBucket,
    CreateCollection,
    CreateScope,
    DeleteBucket,
    DeleteUser,
    EditBucketQuota,
    EnsureManifest,
    PutUser,
    Step,
)
from couchbase_lm_operator.core.couchbase.provisioning_trouble import StepFailure, StepProblem
from couchbase_lm_operator.core.couchbase_state import CouchbaseTrouble, Trouble
from couchbase_lm_operator.io.couchbase import answers, paths, reading, refusals
from couchbase_lm_operator.io.couchbase.http import TroubleError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from couchbase_lm_operator.io.couchbase.access import Credentials
    from couchbase_lm_operator.io.couchbase.http import Answer, ManagementApi

_MEBIBYTE = 1024 * 1024
# Couchbase answers a deletion when the bucket is shut down, which takes it up to 30 s.
_DELETE_TIMEOUT_SECONDS = 40.0
_ENSURE_MANIFEST_SECONDS = 10


async def execute(
    api: ManagementApi, steps: Sequence[Step], user: Credentials | None
) -> StepFailure | CouchbaseTrouble | None:
    """Execute ``steps``; return what stopped them, or None when all are done.

    ``user`` carries the password for ``PutUser``; its name is taken from the step.
    """
    try:
        # A write is sent to one endpoint only: find one that answers first.
        await api.request("GET", paths.POOLS)
    except TroubleError as error:
        return replace(error.trouble, changed_nothing=True)
    for step in steps:
        try:
            failure = await _execute_one(api, step, user)
        except TroubleError as error:
            return error.trouble
        except answers.UnexpectedAnswerError as error:
            return CouchbaseTrouble(Trouble.UNEXPECTED, f"Couchbase's answer about {error.what} is incomplete.")
        if failure is not None:
            return failure
    return None


async def _execute_one(
    api: ManagementApi, step: Step, user: Credentials | None
) -> StepFailure | CouchbaseTrouble | None:
    match step:
        case CreateBucket():
            answer = await api.request("POST", paths.BUCKETS, form=_bucket_form(step))
        case EditBucketQuota():
            form = {"ramQuota": str(step.quota_per_node_bytes // _MEBIBYTE)}
            answer = await api.request("POST", paths.bucket(step.bucket, step.bucket_uuid), form=form)
        case CreateScope():
            answer = await api.request("POST", paths.scopes(step.bucket, step.bucket_uuid), form={"name": step.scope})
        case CreateCollection():
            path = paths.collections(step.bucket, step.scope, step.bucket_uuid)
            answer = await api.request("POST", path, form={"name": step.collection})
        case EnsureManifest():
            answer = await _ensure_manifest(api, step)
        case PutUser():
            answer = await _put_user(api, step, user)
        case DeleteUser():
            return await _delete_user(api, step)
        case DeleteBucket():
            path = paths.bucket(step.bucket, step.bucket_uuid)
            answer = await api.request("DELETE", path, timeout_seconds=_DELETE_TIMEOUT_SECONDS)
            if answer.status == 404:
                return None
        case _:
            assert_never(step)
    return _failure(step, answer)


def _failure(step: Step, answer: Answer) -> StepFailure | CouchbaseTrouble | None:
    if 200 <= answer.status < 300 or refusals.is_already_there(step, answer.status, answer.content):
        return None
    trouble = reading.trouble_of(answer, "bucket and user management")
    if trouble is not None and answer.status in {401, 403}:
        return replace(trouble, changed_nothing=True)
    return refusals.failure_of(step, answer.status, answer.content)


def _bucket_form(step: CreateBucket) -> dict[str, str]:
    form = {
        "name": step.bucket,
        "bucketType": step.bucket_type.lower(),
        "ramQuota": str(step.quota_per_node_bytes // _MEBIBYTE),
        "replicaNumber": str(step.replicas),
        "evictionPolicy": step.eviction_policy,
    }
    if step.max_ttl_seconds:
        form["maxTTL"] = str(step.max_ttl_seconds)
    return form


async def _ensure_manifest(api: ManagementApi, step: EnsureManifest) -> Answer:
    manifest = await reading.read(api, paths.scopes(step.bucket), "the scopes")
    path = paths.ensure_manifest(step.bucket, answers.manifest_uid(manifest), step.bucket_uuid)
    form = {"timeout": str(_ENSURE_MANIFEST_SECONDS * 1000)}
    return await api.request("POST", path, form=form, timeout_seconds=_ENSURE_MANIFEST_SECONDS + 5.0)


async def _put_user(api: ManagementApi, step: PutUser, user: Credentials | None) -> Answer:
    if user is None:
        raise ValueError("PutUser needs the password of the credentials Secret")
    form = {"name": step.mark, "roles": ",".join(step.roles), "password": user.password}
    return await api.request("PUT", paths.local_user(step.user), form=form)


async def _delete_user(api: ManagementApi, step: DeleteUser) -> StepFailure | CouchbaseTrouble | None:
    # The server has no guard for users: look once more before removing.
    found = await reading.read_user(api, step.user)
    if found is None:
        return None
    if found.mark != step.mark:
        return StepFailure(step, StepProblem.USER_CHANGED)
    answer = await api.request("DELETE", paths.local_user(step.user))
    return None if answer.status == 404 else _failure(step, answer)
