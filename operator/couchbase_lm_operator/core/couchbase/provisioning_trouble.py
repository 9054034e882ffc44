"""What a failed read or a refused write means for a person. Pure.

The shells parse answers into the enumerations and numbers here; sentences are written in this file, so no
text of a foreign server ever reaches a condition.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.couchbase_state import CouchbaseTrouble, Trouble
from couchbase_lm_operator.core.verdict import Refuse, Wait

if TYPE_CHECKING:
    from couchbase_lm_operator.core.couchbase.provisioning_steps import Step
    from couchbase_lm_operator.core.couchbase_state import CouchbaseGoal

_MEBIBYTE = 1024 * 1024


class StepProblem(StrEnum):
    """Why Couchbase did not execute a step, as far as its answer tells."""

    BUSY = "Busy"
    BEING_DELETED = "BeingDeleted"
    STILL_DELETING = "StillDeleting"
    VANISHED = "Vanished"
    NAME_TAKEN = "NameTaken"
    BUCKET_NAME = "BucketName"
    QUOTA = "Quota"
    REPLICAS = "Replicas"
    BUCKET_SETTING = "BucketSetting"
    TOO_MANY_BUCKETS = "TooManyBuckets"
    KEYSPACE_LIMIT = "KeyspaceLimit"
    KEYSPACE_NAME = "KeyspaceName"
    PASSWORD_POLICY = "PasswordPolicy"  # noqa: S105 - a finding, not a password
    USER_NAME = "UserName"
    ROLES = "Roles"
    USER_CHANGED = "UserChanged"
    UNEXPECTED = "Unexpected"


@dataclass(frozen=True)
class StepFailure:
    """A refused step; ``fields`` are the parameters the server complained about, by name only.

    ``free_bytes`` is what the server says is free per node, when it says so (negative: missing).
    """

    step: Step
    problem: StepProblem
    fields: tuple[str, ...] = ()
    free_bytes: int | None = None
    http_status: int = 0


_TROUBLE: dict[Trouble, tuple[Reason, float | None]] = {
    # seconds of the first wait; None where a person has to act
    Trouble.BAD_CONNECTION_STRING: (Reason.INVALID_SPEC, None),
    Trouble.UNREACHABLE: (Reason.COUCHBASE_UNREACHABLE, 5.0),
    Trouble.NOT_COUCHBASE: (Reason.NOT_COUCHBASE, None),
    Trouble.NOT_INITIALISED: (Reason.COUCHBASE_NOT_INITIALISED, 10.0),
    Trouble.REDIRECTED: (Reason.ENDPOINT_REDIRECTS, None),
    Trouble.FORBIDDEN_ADDRESS: (Reason.ENDPOINT_FORBIDDEN, None),
    Trouble.BAD_CREDENTIALS: (Reason.ADMIN_CREDENTIALS_REFUSED, None),
    Trouble.NOT_PERMITTED: (Reason.ADMIN_NOT_PERMITTED, None),
    Trouble.TLS: (Reason.COUCHBASE_TLS_FAILED, None),
    Trouble.BUSY: (Reason.COUCHBASE_BUSY, 5.0),
    Trouble.UNEXPECTED: (Reason.COUCHBASE_ANSWER_UNEXPECTED, 10.0),
}


def verdict_of(trouble: CouchbaseTrouble) -> Wait | Refuse:
    """Return what a failed look at the cluster means."""
    reason, delay_seconds = _TROUBLE[trouble.kind]
    if delay_seconds is None:
        return Refuse(reason, trouble.detail)
    return Wait(reason, trouble.detail, delay_seconds)


def verdict_of_step(failure: StepFailure, goal: CouchbaseGoal) -> Wait | Refuse:
    """Return what a refused step means: waiting for what passes by itself, refusing the rest."""
    return _passing(failure, goal) or _refused(failure, goal)


def _passing(failure: StepFailure, goal: CouchbaseGoal) -> Wait | None:
    bucket = goal.bucket.name
    waits = {
        StepProblem.BUSY: Wait(
            Reason.COUCHBASE_BUSY,
            "Couchbase asks to come back later: a rebalance, a failover or another change is in progress.",
            5.0,
        ),
        StepProblem.BEING_DELETED: Wait(
            Reason.BUCKET_BEING_DELETED, f"An earlier bucket {bucket!r} is still being shut down.", 5.0
        ),
        StepProblem.STILL_DELETING: Wait(Reason.DELETING, f"Bucket {bucket!r} is being shut down.", 5.0),
        StepProblem.VANISHED: Wait(
            Reason.COUCHBASE_BUSY, f"Bucket {bucket!r} changed while it was worked on; looking again.", 1.0
        ),
        StepProblem.NAME_TAKEN: Wait(
            Reason.BUCKET_CREATING, f"Bucket {bucket!r} came into being meanwhile; looking again.", 1.0
        ),
        StepProblem.USER_CHANGED: Wait(
            Reason.COUCHBASE_BUSY, f"User {goal.user!r} changed while it was worked on; looking again.", 1.0
        ),
        StepProblem.ROLES: Wait(
            Reason.USER_ROLES_REFUSED,
            "Couchbase does not accept the user's roles: bucket, scope or collection were just removed, or not every "
            "node knows them yet; looking again.",
            2.0,
        ),
        StepProblem.UNEXPECTED: Wait(
            Reason.COUCHBASE_ANSWER_UNEXPECTED,
            f"Couchbase refused to {_doing(failure)} (HTTP {failure.http_status}{_named(failure)}): look into its "
            "own log; it is tried again.",
            10.0,
        ),
    }
    return waits.get(failure.problem)


def _refused(failure: StepFailure, goal: CouchbaseGoal) -> Refuse:
    sentences: dict[StepProblem, tuple[Reason, str]] = {
        StepProblem.BUCKET_NAME: (
            Reason.BUCKET_NAME_REFUSED,
            (
                f"Couchbase does not take {goal.bucket.name!r} as a bucket name: set spec.couchbase.bucket.name to "
                "1-100 characters of A-Z a-z 0-9 _ . % -, not starting with a dot and not taken in another case."
            ),
        ),
        StepProblem.QUOTA: (Reason.QUOTA_EXCEEDS_FREE, _quota_sentence(failure)),
        StepProblem.REPLICAS: (
            Reason.TOO_MANY_REPLICAS,
            (
                "Couchbase refuses the number of replicas: set spec.couchbase.bucket.replicas between the cluster's "
                "minimum and the number of its data nodes less one."
            ),
        ),
        StepProblem.BUCKET_SETTING: (
            Reason.BUCKET_SETTINGS_REFUSED,
            (
                f"Couchbase refuses to {_doing(failure)}{_named(failure)}: correct the fields of the same meaning in "
                "spec.couchbase.bucket."
            ),
        ),
        StepProblem.TOO_MANY_BUCKETS: (
            Reason.TOO_MANY_BUCKETS,
            (
                "The cluster has as many buckets as it allows (30 unless changed): remove one, or share one with "
                "spec.couchbase.bucket.management Shared."
            ),
        ),
        StepProblem.KEYSPACE_LIMIT: (
            Reason.KEYSPACE_REFUSED,
            "The cluster has as many scopes or collections as it allows: remove some, then wait.",
        ),
        StepProblem.KEYSPACE_NAME: (
            Reason.KEYSPACE_REFUSED,
            (
                f"Couchbase does not take scope {goal.scope!r} or collection {goal.collection!r}: set "
                "spec.couchbase.scope and spec.couchbase.collection to 1-251 characters of A-Z a-z 0-9 _ % -, not "
                "starting with _ or %."
            ),
        ),
        StepProblem.PASSWORD_POLICY: (
            Reason.PASSWORD_POLICY_REFUSED,
            (
                f"The password in Secret {goal.secret_name!r} does not meet the cluster's password policy: delete that "
                "Secret, and one that does is generated; or relax the policy."
            ),
        ),
        StepProblem.USER_NAME: (
            Reason.USER_NAME_REFUSED,
            (
                f"Couchbase does not take {goal.user!r} as a user name: set spec.couchbase.user.name to at most 128 "
                'characters without spaces and without any of ( ) < > , ; : \\ " / [ ] ? = { }.'
            ),
        ),
    }
    reason, sentence = sentences[failure.problem]
    return Refuse(reason, sentence)


def _quota_sentence(failure: StepFailure) -> str:
    if failure.free_bytes is None:
        room = "Couchbase has too little memory quota free for the bucket"
    else:
        missing_mib = -(failure.free_bytes // _MEBIBYTE)
        room = f"Couchbase is {missing_mib} MiB per data node short of memory quota for the bucket"
    return f"{room}: lower spec.couchbase.bucket.memoryQuota, give the data service more memory, or remove a bucket."


def _doing(failure: StepFailure) -> str:
    words = {
        "CreateBucket": "create the bucket",
        "EditBucketQuota": "change the bucket's quota",
        "CreateScope": "create the scope",
        "CreateCollection": "create the collection",
        "EnsureManifest": "confirm the collection on every node",
        "PutUser": "write the user",
        "DeleteUser": "remove the user",
        "DeleteBucket": "remove the bucket",
    }
    return words[type(failure.step).__name__]


def _named(failure: StepFailure) -> str:
    return f" because of {', '.join(failure.fields)}" if failure.fields else ""
