"""What to do next at Couchbase for one resource, from what it wants and what was seen. Pure.

One pass: gather the state, ``decide``, save ``record`` in status when it differs, execute ``steps`` in
order until one fails, and let ``verdict_after`` tell how it went. The next pass looks again, so that a
pass may die anywhere. With nothing to do there are no steps, so a provisioned resource writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.couchbase import ownership, provisioning_bucket, provisioning_trouble, provisioning_user
from couchbase_lm_operator.core.couchbase.provisioning_steps import (
    CreateBucket,
    CreateCollection,
    CreateScope,
    DeleteBucket,
    DeleteUser,
    EnsureManifest,
    Step,
)
from couchbase_lm_operator.core.couchbase.provisioning_trouble import StepFailure, StepProblem
from couchbase_lm_operator.core.couchbase_state import CouchbaseGoal, CouchbaseState, CouchbaseTrouble, Trouble
from couchbase_lm_operator.core.verdict import Proceed, Refuse, Verdict, Wait

if TYPE_CHECKING:
    from couchbase_lm_operator.core.couchbase.bucket_quota import BucketSize
    from couchbase_lm_operator.core.couchbase_state import BucketRecord

_REQUEST_TIMEOUT = 408


class Stage(StrEnum):
    """How far provisioning has come: the condition to which a verdict belongs."""

    CLAIM = "Claim"
    REACH = "Reach"
    BUCKET = "Bucket"
    CREDENTIALS = "Credentials"
    DONE = "Done"


@dataclass(frozen=True)
class CouchbaseFacts:
    """What status shows of the cluster and the bucket; ``size`` is None where bucket or working set are not known."""

    edition: str = ""
    server_version: str = ""
    size: BucketSize | None = None
    differences: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProvisioningDecision:
    """The next writes, in order, and what to tell.

    ``record`` must be in status before the first step is executed: it carries the intent of a creation.
    ``verdict`` belongs to ``stage``; stages before it are done. With steps it is what holds after them.
    """

    steps: tuple[Step, ...]
    verdict: Verdict
    record: BucketRecord | None
    stage: Stage
    facts: CouchbaseFacts = CouchbaseFacts()


def decide(
    goal: CouchbaseGoal,
    seen: CouchbaseState | CouchbaseTrouble | None,
    *,
    credentials_present: bool,
    generation: int,
    rival: Refuse | None = None,
) -> ProvisioningDecision:
    """Return the next writes for ``goal``.

    ``seen`` is None when nothing could be asked for want of credentials. ``credentials_present`` says
    whether the Secret of the generated user exists. ``rival`` comes from ``core.couchbase.claims``.
    """
    if rival is not None:
        return ProvisioningDecision((), rival, goal.record, Stage.CLAIM)
    if seen is None:
        return ProvisioningDecision((), _no_credentials(goal), goal.record, Stage.REACH)
    if isinstance(seen, CouchbaseTrouble):
        return ProvisioningDecision((), provisioning_trouble.verdict_of(seen), goal.record, Stage.REACH)
    if goal.provisioning == "External":
        return _external(goal, seen)
    return _provision(goal, seen, generation, credentials_present=credentials_present)


def decide_removal(goal: CouchbaseGoal, seen: CouchbaseState | CouchbaseTrouble | None) -> ProvisioningDecision:
    """Return the writes that remove what a deleted resource owned at Couchbase.

    The user always goes, if it carries our mark; the bucket only with reclaimPolicy Delete and only if it
    is the one we created. ``Proceed`` means that nothing is left to do.
    """
    if seen is None or goal.provisioning == "External":
        return ProvisioningDecision((), Proceed(), goal.record, Stage.DONE)
    if isinstance(seen, CouchbaseTrouble):
        return ProvisioningDecision((), provisioning_trouble.verdict_of(seen), goal.record, Stage.REACH)
    record = provisioning_bucket.matching_record(goal, seen)
    owned = provisioning_bucket.owned_record(goal, seen, record)
    steps: list[Step] = []
    if seen.user is not None and provisioning_user.is_ours(goal, seen.user):
        steps.append(DeleteUser(goal.user, seen.user.mark))
    if owned is not None and goal.bucket.reclaim_policy == "Delete" and goal.bucket.management == "Owned":
        # When perhaps only the user's mark tells that the bucket is ours, the user must go last.
        is_remembered = record is not None and record.uuid == owned.uuid
        steps.insert(len(steps) if is_remembered else 0, DeleteBucket(goal.bucket.name, owned.uuid))
    if not steps:
        return ProvisioningDecision((), Proceed(), record, Stage.DONE)
    wait = Wait(Reason.DELETING, "User and bucket are being removed from Couchbase.", 1.0)
    return ProvisioningDecision(tuple(steps), wait, owned or record, Stage.DONE)


def verdict_after(
    decision: ProvisioningDecision, goal: CouchbaseGoal, outcome: StepFailure | CouchbaseTrouble | None
) -> Verdict:
    """Return the verdict once the steps were executed; ``outcome`` is the failure that stopped them."""
    if outcome is None:
        return decision.verdict
    if isinstance(outcome, CouchbaseTrouble):
        return provisioning_trouble.verdict_of(outcome)
    return provisioning_trouble.verdict_of_step(outcome, goal)


def record_after(
    decision: ProvisioningDecision,
    before: BucketRecord | None,
    outcome: StepFailure | CouchbaseTrouble | None,
    seen: CouchbaseState | CouchbaseTrouble | None,
) -> BucketRecord | None:
    """Return the record once the steps were executed; save it when it is not ``decision.record``.

    ``before`` is the record of the goal, ``seen`` the look after the failure, wanted where ``wants_look_after`` says
    so. An intent is void when the creation was refused: an empty bucket of that name that somebody else makes later
    must not count as ours. After an answer that was lost it stays: the bucket may have been made. An intent that an
    earlier try left is void only when a look after the refusal shows no bucket: the earlier request may have been
    carried out since the look before, and be what this one was refused for.
    """
    record = decision.record
    if record is None or outcome is None or not _creates_bucket(decision) or not _was_refused(outcome):
        return record
    if before is None or not _is_about_same(before, record):
        return replace(record, cluster_uuid="")
    if before.uuid:
        # It tells next time whose the bucket is: a node that did not know it for a moment may have answered our look.
        return before
    is_absent = isinstance(seen, CouchbaseState) and seen.cluster_uuid == record.cluster_uuid and seen.bucket is None
    return replace(record, cluster_uuid="") if is_absent and _voids_older(outcome) else record


def wants_look_after(
    decision: ProvisioningDecision, before: BucketRecord | None, outcome: StepFailure | CouchbaseTrouble | None
) -> bool:
    """Say whether ``record_after`` needs a look that began after this outcome."""
    if decision.record is None or outcome is None or not _creates_bucket(decision):
        return False
    return before is not None and _is_about_same(before, decision.record) and _voids_older(outcome)


def _creates_bucket(decision: ProvisioningDecision) -> bool:
    return any(isinstance(step, CreateBucket) for step in decision.steps)


def _is_about_same(before: BucketRecord, record: BucketRecord) -> bool:
    return (before.name, before.cluster_uuid) == (record.name, record.cluster_uuid)


def _was_refused(outcome: StepFailure | CouchbaseTrouble) -> bool:
    """Say whether the creation was certainly not carried out; a server's or a gateway's trouble proves nothing."""
    if isinstance(outcome, CouchbaseTrouble):
        return outcome.changed_nothing
    if outcome.problem in {StepProblem.NAME_TAKEN, StepProblem.BEING_DELETED}:
        return True
    return 400 <= outcome.http_status < 500 and outcome.http_status != _REQUEST_TIMEOUT


def _voids_older(outcome: StepFailure | CouchbaseTrouble) -> bool:
    """Say whether Couchbase judged the creation itself and refused it.

    A name that is taken or being given up, and a server that is busy, may be the earlier creation; a request that
    was never sent tells nothing of it.
    """
    if isinstance(outcome, CouchbaseTrouble):
        return outcome.changed_nothing and outcome.kind in {Trouble.BAD_CREDENTIALS, Trouble.NOT_PERMITTED}
    is_about_another = outcome.problem in {StepProblem.NAME_TAKEN, StepProblem.BEING_DELETED, StepProblem.BUSY}
    return _was_refused(outcome) and not is_about_another


def _no_credentials(goal: CouchbaseGoal) -> Wait:
    field = "credentialsSecretRef" if goal.provisioning == "External" else "adminSecretRef"
    return Wait(
        Reason.SECRET_MISSING,
        f"The Secret of spec.couchbase.{field} does not exist or lacks the keys username and password: create it.",
        15.0,
    )


def _external(goal: CouchbaseGoal, seen: CouchbaseState) -> ProvisioningDecision:
    facts = CouchbaseFacts(server_version=seen.version)
    if seen.login is None:
        wait = Wait(Reason.DATA_SERVICE_UNREACHABLE, "The login of the given user was not tried yet.", 5.0)
        return ProvisioningDecision((), wait, goal.record, Stage.CREDENTIALS, facts)
    verdict = provisioning_user.login_verdict(seen.login, is_pending=False)
    stage = Stage.DONE if isinstance(verdict, Proceed) else Stage.CREDENTIALS
    return ProvisioningDecision((), verdict, goal.record, stage, facts)


def _provision(
    goal: CouchbaseGoal, seen: CouchbaseState, generation: int, *, credentials_present: bool
) -> ProvisioningDecision:
    facts = CouchbaseFacts("Enterprise" if seen.is_enterprise else "Community", seen.version)
    if not seen.is_enterprise:
        refusal = Refuse(
            Reason.COMMUNITY_EDITION,
            "The cluster runs Community Edition, which has no roles on collections: use Enterprise Edition, or create "
            "bucket, collection and user yourself and set spec.couchbase.provisioning to External.",
        )
        return ProvisioningDecision((), refusal, goal.record, Stage.REACH, facts)
    if ownership.is_marker_scope(goal.scope):
        return ProvisioningDecision((), _reserved_scope(goal), goal.record, Stage.BUCKET, facts)
    foreign = provisioning_user.foreign_user(goal, seen)
    if foreign is not None:
        return ProvisioningDecision((), foreign, goal.record, Stage.CREDENTIALS, facts)
    part = provisioning_bucket.decide_bucket(goal, seen, generation)
    different = provisioning_bucket.differences(goal, seen.bucket) if seen.bucket else ()
    facts = CouchbaseFacts(facts.edition, facts.server_version, part.size, different)
    if part.blocked is not None:
        return ProvisioningDecision(part.steps, part.blocked, part.record, Stage.BUCKET, facts)
    assert part.record is not None  # noqa: S101 - a bucket that is not blocked has a record
    assert seen.bucket is not None  # noqa: S101 - likewise
    steps = _keyspace_steps(goal, seen)
    user = provisioning_user.decide_user(goal, seen, part.record, generation, credentials_present=credentials_present)
    if user.put is not None:
        steps = (*steps, EnsureManifest(goal.bucket.name, part.record.uuid), user.put)
    if steps and isinstance(user.verdict, Proceed):
        creating = Wait(Reason.KEYSPACE_CREATING, "Scope and collection are being created.", 1.0)
        return ProvisioningDecision(steps, creating, user.record, Stage.BUCKET, facts)
    stage = Stage.DONE if isinstance(user.verdict, Proceed) else Stage.CREDENTIALS
    return ProvisioningDecision(steps, user.verdict, user.record, stage, facts)


def _keyspace_steps(goal: CouchbaseGoal, seen: CouchbaseState) -> tuple[Step, ...]:
    assert seen.bucket is not None  # noqa: S101 - the caller asked before
    name, uuid = goal.bucket.name, seen.bucket.uuid
    steps: list[Step] = []
    if goal.bucket.management == "Owned" and not provisioning_bucket.is_marked(goal, seen.bucket):
        # First: from here on the bucket itself tells whose it is.
        steps.append(CreateScope(name, uuid, ownership.marker_scope(goal.ownership_mark, uuid)))
    collections = seen.bucket.scopes.get(goal.scope)
    if collections is None:
        steps.append(CreateScope(name, uuid, goal.scope))
    if collections is None or goal.collection not in collections:
        steps.append(CreateCollection(name, uuid, goal.scope, goal.collection))
    return tuple(steps)


def _reserved_scope(goal: CouchbaseGoal) -> Refuse:
    # Otherwise a resource could have the operator mark a foreign bucket, and a second one would own it.
    return Refuse(
        Reason.KEYSPACE_REFUSED,
        f"Scope {goal.scope!r} is named like the scopes by which the operator marks its own buckets: set "
        "spec.couchbase.scope to another name.",
    )
