"""The user's part of provisioning: exactly two roles on one collection, one mark, one password. Pure.

Couchbase pins roles to the ids of bucket and collection: when one of them is created anew, the roles are
gone, and the user is written again with the password that the Secret keeps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.couchbase import ownership
from couchbase_lm_operator.core.couchbase.provisioning_bucket import REMOVALS_TOLERATED
from couchbase_lm_operator.core.couchbase.provisioning_steps import PutUser
from couchbase_lm_operator.core.couchbase_state import LoginProblem, UserAccess, UserState
from couchbase_lm_operator.core.verdict import Proceed, Refuse, Verdict, Wait

if TYPE_CHECKING:
    from couchbase_lm_operator.core.couchbase_state import BucketRecord, CouchbaseGoal, CouchbaseState, LoginState

_LOGIN_REASONS = {
    LoginProblem.UNREACHABLE: Reason.DATA_SERVICE_UNREACHABLE,
    LoginProblem.FORBIDDEN_ADDRESS: Reason.ENDPOINT_FORBIDDEN,
    LoginProblem.TLS: Reason.COUCHBASE_TLS_FAILED,
    LoginProblem.NOT_COUCHBASE: Reason.NOT_COUCHBASE,
    LoginProblem.LOGIN_REFUSED: Reason.USER_REFUSED,
    LoginProblem.BUCKET_REFUSED: Reason.BUCKET_ACCESS_REFUSED,
    LoginProblem.COLLECTION_REFUSED: Reason.COLLECTION_ACCESS_REFUSED,
}
# Just after a user was written, nodes that refuse it only have not heard of it yet.
_PENDING = frozenset({LoginProblem.LOGIN_REFUSED, LoginProblem.BUCKET_REFUSED, LoginProblem.COLLECTION_REFUSED})


@dataclass(frozen=True)
class UserPart:
    """What follows for the user; ``put`` None means that it stands as it should."""

    record: BucketRecord
    put: PutUser | None
    verdict: Verdict


def wanted_roles(goal: CouchbaseGoal) -> tuple[str, ...]:
    """Return the only roles the user gets, as Couchbase writes them."""
    keyspace = f"{goal.bucket.name}:{goal.scope}:{goal.collection}"
    return (f"data_reader[{keyspace}]", f"data_writer[{keyspace}]")


def is_ours(goal: CouchbaseGoal, user: UserState) -> bool:
    """Say whether the mark in the user's ``name`` field is this resource's."""
    mark = ownership.read(user.mark)
    return mark is not None and mark.base == goal.ownership_mark


def foreign_user(goal: CouchbaseGoal, seen: CouchbaseState) -> Refuse | None:
    """Return the refusal when a user of that name belongs to somebody else."""
    if seen.user is None or is_ours(goal, seen.user):
        return None
    return Refuse(
        Reason.USER_NOT_OURS,
        f"Couchbase user {goal.user!r} exists and does not carry this resource's mark: choose another "
        "spec.couchbase.user.name, or remove that user.",
    )


def decide_user(
    goal: CouchbaseGoal, seen: CouchbaseState, record: BucketRecord, generation: int, *, credentials_present: bool
) -> UserPart:
    """Return what to do about the user, once bucket and collection exist or are about to."""
    if record.user != goal.user:
        record = replace(record, user=goal.user, user_uuid="", user_removed_by_others_count=0)
    if seen.user is None and record.user_uuid:
        record = _count_removal(record, generation)
        if record.user_removed_by_others_count > REMOVALS_TOLERATED:
            return UserPart(record, None, _removed_again(goal.user))
        record = replace(record, user_uuid="")
    elif seen.user is not None:
        record = replace(record, user_uuid=seen.user.uuid)
    if not credentials_present:
        wait = Wait(
            Reason.CREDENTIALS_PENDING,
            f"Secret {goal.secret_name!r} with the generated user name and password does not exist yet.",
            1.0,
        )
        return UserPart(record, None, wait)
    mark = ownership.full_mark(goal.ownership_mark, record.uuid, owns_bucket=record.created)
    if _stands(goal, seen, mark):
        return UserPart(record, None, _proven(goal, seen.login))
    wait = Wait(Reason.CREDENTIALS_PENDING, f"Couchbase user {goal.user!r} is being written.", 1.0)
    return UserPart(record, PutUser(goal.user, mark, wanted_roles(goal)), wait)


def login_verdict(login: LoginState, *, is_pending: bool) -> Proceed | Wait | Refuse:
    """Return what a login proof means; ``is_pending`` says that refusals may just be propagation."""
    if login.is_proven:
        return Proceed()
    if login.problem is None:
        return Wait(Reason.DATA_SERVICE_UNREACHABLE, login.detail or "No data node was asked yet.", 2.0)
    if login.problem in _PENDING and is_pending:
        # No node names: the message would change, and status be written, with each node that learns of it.
        return Wait(Reason.CREDENTIALS_PENDING, "Not every data node knows the user and its rights yet.", 1.0)
    reason = _LOGIN_REASONS[login.problem]
    if login.problem in {LoginProblem.UNREACHABLE, *_PENDING}:
        return Wait(reason, login.detail, 5.0)
    return Refuse(reason, login.detail)


def _stands(goal: CouchbaseGoal, seen: CouchbaseState, mark: str) -> bool:
    user = seen.user
    return (
        user is not None
        and user.mark == mark
        and user.roles == frozenset(wanted_roles(goal))
        and seen.user_access in {None, UserAccess.GRANTED}
    )


def _proven(goal: CouchbaseGoal, login: LoginState | None) -> Verdict:
    if login is None:
        return Wait(Reason.CREDENTIALS_PENDING, f"The login of user {goal.user!r} is not proven yet.", 1.0)
    return login_verdict(login, is_pending=True)


def _count_removal(record: BucketRecord, generation: int) -> BucketRecord:
    if record.user_removed_by_others_count > REMOVALS_TOLERATED:
        if generation <= record.refused_generation:
            return record
        return replace(record, user_removed_by_others_count=0)
    counted = replace(record, user_removed_by_others_count=record.user_removed_by_others_count + 1)
    if counted.user_removed_by_others_count > REMOVALS_TOLERATED:
        return replace(counted, refused_generation=generation)
    return counted


def _removed_again(user: str) -> Refuse:
    return Refuse(
        Reason.REMOVED_BY_THIRD_PARTY,
        f"Somebody else removed Couchbase user {user!r} twice, so it is not created a third time: find out who (the "
        "Couchbase Autonomous Operator with security.rbac.managed true removes users it does not know), stop it, then "
        "change any field of spec.",
    )
