"""Decisions about Couchbase, row by row: what was seen and remembered, and the writes that follow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.couchbase import ownership, provisioning
from couchbase_lm_operator.core.couchbase.provisioning import Stage, decide, decide_removal
from couchbase_lm_operator.core.couchbase.provisioning_steps import (
    CreateBucket,
    CreateScope,
    DeleteBucket,
    EditBucketQuota,
    PutUser,
)
from couchbase_lm_operator.core.couchbase.provisioning_trouble import StepFailure, StepProblem
from couchbase_lm_operator.core.couchbase_state import (
    BucketRecord,
    BucketState,
    CouchbaseGoal,
    CouchbaseState,
    CouchbaseTrouble,
    LoginProblem,
    LoginState,
    Trouble,
    UserAccess,
    UserState,
)
from couchbase_lm_operator.core.verdict import Proceed, Refuse, Wait
from tests.core.couchbase.test_bucket_quota import cluster
from tests.provisioning.arm import BUCKET, MEBIBYTE, USER, bucket_goal, couchbase_goal

GOAL = couchbase_goal("couchbase://cb", ())
RECORD = BucketRecord(BUCKET, "c", uuid="b1", created=True, user=USER, user_uuid="u1")
INTENT = BucketRecord(BUCKET, "c")
MARKER = ownership.marker_scope(GOAL.ownership_mark, "b1")
READY = BucketState(
    name=BUCKET,
    uuid="b1",
    bucket_type="ephemeral",
    quota_per_node_bytes=400 * MEBIBYTE,
    replicas=0,
    eviction_policy="nruEviction",
    max_ttl_seconds=0,
    node_statuses=("healthy",),
    item_count=7,
    scopes={"_default": frozenset({"_default"}), "team": frozenset({"demo"}), MARKER: frozenset()},
)
UNMARKED = replace(READY, scopes={"team": frozenset({"demo"})})
FRESH = replace(READY, item_count=0, scopes={"_default": frozenset({"_default"}), "_system": frozenset()})
ROLES = frozenset({f"data_reader[{BUCKET}:team:demo]", f"data_writer[{BUCKET}:team:demo]"})
OURS = UserState(USER, ownership.full_mark(GOAL.ownership_mark, "b1", owns_bucket=True), "u1", ROLES)
PROVEN = LoginState(("cb:11210",), ())
DONE = replace(cluster(), bucket=READY, user=OURS, login=PROVEN, user_access=UserAccess.GRANTED)
KEPT = replace(cluster(), bucket=READY)  # what a deleted resource left behind


def goal(record: BucketRecord | None = RECORD, **bucket: Any) -> CouchbaseGoal:
    return replace(GOAL, record=record, bucket=bucket_goal(**bucket))


def steps_of(wanted: CouchbaseGoal, seen: CouchbaseState, **more: Any) -> list[str]:
    decision = decide(wanted, seen, **({"credentials_present": True, "generation": 1} | more))
    return [type(step).__name__ for step in decision.steps]


def test_done_writes_nothing_and_changes_no_record() -> None:
    decision = decide(goal(), DONE, credentials_present=True, generation=1)
    assert (decision.steps, decision.verdict, decision.stage) == ((), Proceed(), Stage.DONE)
    assert decision.record == RECORD


THEIRS = ownership.marker_scope(ownership.mark("0123abcd", "team", "other"), "b1")
KEYSPACE_AND_USER = ["CreateScope", "CreateScope", "CreateCollection", "EnsureManifest", "PutUser"]


@pytest.mark.parametrize(
    ("record", "seen", "steps"),
    [
        (None, cluster(), ["CreateBucket"]),
        (INTENT, cluster(), ["CreateBucket"]),
        (replace(RECORD, cluster_uuid="elsewhere"), cluster(), ["CreateBucket"]),
        (INTENT, replace(cluster(), bucket=replace(FRESH, node_statuses=())), []),
        (INTENT, replace(cluster(), bucket=replace(FRESH, node_statuses=("healthy", "warmup"))), []),
        (INTENT, replace(cluster(), bucket=FRESH), KEYSPACE_AND_USER),
        (RECORD, replace(DONE, bucket=FRESH), ["CreateScope", "CreateScope", "CreateCollection"]),
        (RECORD, replace(DONE, bucket=UNMARKED), ["CreateScope"]),
        (
            RECORD,
            replace(
                DONE,
                bucket=replace(READY, scopes={"team": frozenset(), MARKER: frozenset()}),
                user_access=UserAccess.RIGHTS_MISSING,
            ),
            ["CreateCollection", "EnsureManifest", "PutUser"],
        ),
        (RECORD, replace(DONE, user=None), ["EnsureManifest", "PutUser"]),
        (RECORD, replace(DONE, user=replace(OURS, roles=frozenset())), ["EnsureManifest", "PutUser"]),
        (RECORD, replace(DONE, user_access=UserAccess.PASSWORD_REFUSED), ["EnsureManifest", "PutUser"]),
        (RECORD, replace(DONE, user_access=UserAccess.RIGHTS_MISSING), ["EnsureManifest", "PutUser"]),
        (RECORD, replace(DONE, login=None), []),
        (None, replace(DONE, bucket=UNMARKED), ["CreateScope"]),  # status lost: the user's mark knows
        (None, DONE, []),
        (None, KEPT, ["EnsureManifest", "PutUser"]),  # applied again
    ],
)
def test_next_writes(record: BucketRecord | None, seen: CouchbaseState, steps: list[str]) -> None:
    assert steps_of(goal(record), seen) == steps


def test_without_credentials_everything_but_the_user_is_made() -> None:
    seen = replace(cluster(), bucket=FRESH)
    made = steps_of(goal(INTENT), seen, credentials_present=False)
    assert made == ["CreateScope", "CreateScope", "CreateCollection"]


def test_the_bucket_is_marked_before_anything_else_is_put_into_it() -> None:
    decision = decide(goal(INTENT), replace(cluster(), bucket=FRESH), credentials_present=True, generation=1)
    assert decision.steps[0] == CreateScope(BUCKET, "b1", MARKER)


@pytest.mark.parametrize(
    "record",
    [
        None,
        INTENT,
        replace(RECORD, cluster_uuid="elsewhere"),
        replace(RECORD, created=False),  # it used its own kept bucket as Shared
        replace(RECORD, uuid="b0"),  # status was restored from an older backup
    ],
)
def test_a_marked_bucket_is_ours_whatever_status_and_user_tell(record: BucketRecord | None) -> None:
    kept = decide(goal(record), KEPT, credentials_present=True, generation=1)
    assert [type(step).__name__ for step in kept.steps] == ["EnsureManifest", "PutUser"]
    assert kept.record is not None
    assert (kept.record.uuid, kept.record.created) == ("b1", True)
    settled = decide(goal(kept.record), DONE, credentials_present=True, generation=1)
    assert (settled.steps, settled.verdict) == ((), Proceed())
    removal = decide_removal(goal(record, reclaim_policy="Delete"), KEPT)
    assert [type(step) for step in removal.steps] == [DeleteBucket]


@pytest.mark.parametrize("management", ["Owned", "Shared"])
def test_no_resource_makes_a_scope_that_is_named_like_a_marker(management: str) -> None:
    forging = replace(goal(None, management=management), scope=MARKER)
    decision = decide(forging, replace(cluster(), bucket=UNMARKED), credentials_present=True, generation=1)
    assert decision.steps == ()
    assert isinstance(decision.verdict, Refuse)
    assert decision.verdict.reason is Reason.KEYSPACE_REFUSED
    assert "spec.couchbase.scope" in decision.verdict.message


def test_a_shared_bucket_is_never_marked() -> None:
    wanted = goal(None, management="Shared")
    seen = replace(cluster(), bucket=replace(FRESH, uuid="b9"))
    decision = decide(wanted, seen, credentials_present=True, generation=1)
    assert [step.scope for step in decision.steps if isinstance(step, CreateScope)] == ["team"]


def test_an_intent_is_recorded_with_the_creation_and_the_uuid_before_anything_else() -> None:
    creation = decide(goal(None), cluster(), credentials_present=True, generation=1)
    assert creation.record == INTENT
    seen = replace(cluster(), bucket=FRESH)
    adoption = decide(goal(INTENT), seen, credentials_present=True, generation=1)
    assert adoption.record == replace(INTENT, uuid="b1", created=True, user=USER)


@pytest.mark.parametrize(
    ("record", "seen"),
    [
        (None, replace(cluster(), bucket=FRESH)),
        (INTENT, replace(cluster(), bucket=UNMARKED)),
        (INTENT, replace(cluster(), bucket=replace(FRESH, uuid="b2", scopes={MARKER: frozenset()}))),
        (INTENT, replace(cluster(), bucket=replace(FRESH, item_count=1))),
        (INTENT, replace(cluster(), bucket=replace(FRESH, bucket_type="membase"))),
        (INTENT, replace(cluster(), bucket=replace(FRESH, scopes={"their": frozenset()}))),
        (replace(INTENT, cluster_uuid="elsewhere"), replace(cluster(), bucket=FRESH)),
        (RECORD, replace(DONE, bucket=replace(READY, uuid="b2"))),  # a copy: the marker is of another UUID
        (None, replace(cluster(), bucket=replace(READY, scopes={THEIRS: frozenset()}))),
        (replace(RECORD, uuid="b0"), replace(DONE, bucket=UNMARKED)),
        (replace(RECORD, created=False), replace(DONE, bucket=UNMARKED)),  # it was shared before
        (None, replace(DONE, bucket=UNMARKED, user=replace(OURS, mark=OURS.mark.replace("owns", "uses")))),
        (None, replace(DONE, bucket=UNMARKED, user=replace(OURS, mark=OURS.mark.replace("b1", "b0")))),
    ],
)
def test_somebody_elses_bucket(record: BucketRecord | None, seen: CouchbaseState) -> None:
    decision = decide(goal(record), seen, credentials_present=True, generation=1)
    assert decision.steps == ()
    assert isinstance(decision.verdict, Refuse)
    assert decision.verdict.reason is Reason.BUCKET_NOT_OURS
    removal = decide_removal(goal(record, reclaim_policy="Delete"), seen)
    assert "DeleteBucket" not in [type(step).__name__ for step in removal.steps]


@pytest.mark.parametrize("mark", ["", "Ann", OURS.mark.replace("team/demo", "team/other"), OURS.mark + " x"])
def test_somebody_elses_user_stops_before_a_bucket_is_made(mark: str) -> None:
    seen = replace(cluster(), user=replace(OURS, mark=mark))
    decision = decide(goal(None), seen, credentials_present=True, generation=1)
    assert decision.steps == ()
    assert isinstance(decision.verdict, Refuse)
    assert decision.verdict.reason is Reason.USER_NOT_OURS
    assert decide_removal(goal(None), seen).steps == ()


def test_removals_are_counted_and_a_change_of_the_spec_starts_again() -> None:
    first = decide(goal(), replace(DONE, bucket=None), credentials_present=True, generation=1)
    assert [type(step) for step in first.steps] == [CreateBucket]
    assert first.record == replace(RECORD, uuid="", created=False, removed_by_others_count=1)
    again = replace(RECORD, uuid="b2", removed_by_others_count=1)
    second = decide(goal(again), replace(DONE, bucket=None), credentials_present=True, generation=1)
    assert second.steps == ()
    assert isinstance(second.verdict, Refuse)
    assert second.verdict.reason is Reason.REMOVED_BY_THIRD_PARTY
    third = decide(goal(second.record), replace(DONE, bucket=None), credentials_present=True, generation=1)
    assert third == second
    edited = decide(goal(second.record), replace(DONE, bucket=None), credentials_present=True, generation=2)
    assert [type(step) for step in edited.steps] == [CreateBucket]


def test_a_renamed_user_is_no_removed_user() -> None:
    renamed = replace(goal(), user="new-name")
    decision = decide(renamed, replace(DONE, user=None), credentials_present=True, generation=2)
    assert isinstance(decision.steps[-1], PutUser)
    assert decision.record is not None
    assert decision.record.user_removed_by_others_count == 0


@pytest.mark.parametrize(
    ("requested", "wish", "edits"),
    [
        (None, None, False),
        (None, 400, False),  # as it is already
        (None, 500, True),
        (500, 500, False),  # somebody else changed it afterwards
        (500, 600, True),
        (500, None, False),
    ],
)
def test_quota_edits(requested: int | None, wish: int | None, *, edits: bool) -> None:
    record = replace(RECORD, requested_quota_bytes=requested and requested * MEBIBYTE)
    wanted = goal(record, memory_quota_bytes=wish and wish * MEBIBYTE)
    decision = decide(wanted, DONE, credentials_present=True, generation=1)
    assert [type(step) for step in decision.steps] == ([EditBucketQuota] if edits else [])


def test_other_settings_of_an_existing_bucket_are_told_and_not_changed() -> None:
    wanted = goal(replicas=1, eviction_policy="noEviction", max_ttl_seconds=60)
    decision = decide(wanted, DONE, credentials_present=True, generation=1)
    assert decision.steps == ()
    assert decision.verdict == Proceed()
    assert [text.split()[0] for text in decision.facts.differences] == ["replicas", "evictionPolicy", "maxTTL"]


def test_a_bucket_smaller_than_the_working_set_shows() -> None:
    decision = decide(goal(working_set_bytes=800 * MEBIBYTE), DONE, credentials_present=True, generation=1)
    assert decision.facts.size is not None
    assert decision.facts.size.is_below_working_set


@pytest.mark.parametrize("kind", list(Trouble))
def test_every_trouble_of_the_endpoint_has_a_verdict_and_writes_nothing(kind: Trouble) -> None:
    trouble = CouchbaseTrouble(kind, "A sentence of ours.")
    decision = decide(goal(), trouble, credentials_present=True, generation=1)
    assert decision.steps == ()
    assert isinstance(decision.verdict, Wait | Refuse)
    assert decision.verdict.message == "A sentence of ours."
    assert (decision.stage, decision.record) == (Stage.REACH, RECORD)
    assert isinstance(decide_removal(goal(), trouble).verdict, Wait | Refuse)


@pytest.mark.parametrize("problem", list(StepProblem))
def test_every_refused_step_has_a_verdict(problem: StepProblem) -> None:
    decision = decide(goal(None), cluster(), credentials_present=True, generation=1)
    failure = StepFailure(decision.steps[0], problem, ("ramQuota",), -5 * MEBIBYTE, 400)
    verdict = provisioning.verdict_after(decision, GOAL, failure)
    assert isinstance(verdict, Wait | Refuse)
    assert verdict.message.endswith(".")


@pytest.mark.parametrize("problem", list(LoginProblem))
def test_every_login_problem_has_a_verdict(problem: LoginProblem) -> None:
    login = LoginState((), ("cb:11210",), "A sentence of ours.", problem)
    for wanted in (goal(), replace(goal(None), provisioning="External")):
        decision = decide(wanted, replace(DONE, login=login), credentials_present=True, generation=1)
        assert decision.steps == ()
        assert isinstance(decision.verdict, Wait | Refuse)
        assert decision.stage is Stage.CREDENTIALS


def test_a_rival_stops_everything() -> None:
    rival = Refuse(Reason.CLAIMED_BY_OTHER, "Taken.")
    decision = decide(goal(None), cluster(), credentials_present=True, generation=1, rival=rival)
    assert (decision.steps, decision.verdict, decision.stage) == ((), rival, Stage.CLAIM)


@pytest.mark.parametrize(
    ("wanted", "seen", "steps"),
    [
        (goal(), DONE, ["DeleteUser"]),
        (goal(reclaim_policy="Delete"), DONE, ["DeleteUser", "DeleteBucket"]),
        (goal(None, reclaim_policy="Delete"), DONE, ["DeleteBucket", "DeleteUser"]),
        (goal(reclaim_policy="Delete"), replace(DONE, user=None), ["DeleteBucket"]),
        (goal(reclaim_policy="Delete", management="Shared"), DONE, ["DeleteUser"]),
        (goal(None), KEPT, []),
        (goal(replace(RECORD, uuid="b0"), reclaim_policy="Delete"), replace(DONE, bucket=UNMARKED), ["DeleteUser"]),
        (
            goal(replace(RECORD, cluster_uuid="x"), reclaim_policy="Delete"),
            replace(DONE, bucket=UNMARKED, user=None),
            [],
        ),
        (goal(reclaim_policy="Delete"), cluster(), []),
        (replace(goal(reclaim_policy="Delete"), provisioning="External"), DONE, []),
    ],
)
def test_removal(wanted: CouchbaseGoal, seen: CouchbaseState, steps: list[str]) -> None:
    decision = decide_removal(wanted, seen)
    assert [type(step).__name__ for step in decision.steps] == steps
    assert isinstance(decision.verdict, Wait if steps else Proceed)


def test_a_bucket_of_unknown_size_is_not_made_and_all_else_is() -> None:
    unsized = replace(GOAL, bucket=bucket_goal(working_set_bytes=None), record=RECORD)
    gone = decide(unsized, replace(DONE, bucket=None), credentials_present=True, generation=1)
    assert (gone.steps, gone.stage, gone.record) == ((), Stage.BUCKET, RECORD)
    assert isinstance(gone.verdict, Wait)
    assert gone.verdict.reason == Reason.BUCKET_SIZE_UNKNOWN
    lost_user = decide(unsized, replace(DONE, user=None), credentials_present=True, generation=1)
    assert any(isinstance(step, PutUser) for step in lost_user.steps)
    # whether the bucket is as large as wished for is not known either
    assert lost_user.facts.size is None
    explicit = replace(unsized, bucket=replace(unsized.bucket, memory_quota_bytes=256 * MEBIBYTE))
    made = decide(explicit, replace(DONE, bucket=None), credentials_present=True, generation=1)
    assert [each.quota_per_node_bytes for each in made.steps if isinstance(each, CreateBucket)] == [256 * MEBIBYTE]
