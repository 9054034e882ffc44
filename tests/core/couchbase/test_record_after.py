"""Whose a bucket of that name is after its creation went wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from couchbase_lm_operator.core.couchbase.provisioning import (
    ProvisioningDecision,
    decide,
    record_after,
    wants_look_after,
)
from couchbase_lm_operator.core.couchbase.provisioning_trouble import StepFailure, StepProblem
from couchbase_lm_operator.core.couchbase_state import BucketRecord, CouchbaseState, CouchbaseTrouble, Trouble
from tests.core.couchbase.test_bucket_quota import cluster
from tests.core.couchbase.test_provisioning import FRESH
from tests.provisioning.arm import BUCKET, couchbase_goal

INTENT = BucketRecord(BUCKET, "c")
VOID = replace(INTENT, cluster_uuid="")
OWNED = replace(INTENT, uuid="b1", created=True)


def creation(before: BucketRecord | None) -> tuple[ProvisioningDecision, StepFailure]:
    goal = couchbase_goal("couchbase://cb", (), record=before)
    decision = decide(goal, cluster(), credentials_present=True, generation=1)
    return decision, StepFailure(decision.steps[0], StepProblem.NAME_TAKEN)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, VOID),  # void: it was recorded just now
        (replace(OWNED, cluster_uuid="elsewhere"), VOID),
        (INTENT, INTENT),  # an earlier pass may have made it and died
        (OWNED, OWNED),  # its UUID tells next time whose it is
    ],
)
def test_a_taken_name(before: BucketRecord | None, after: BucketRecord) -> None:
    decision, failure = creation(before)
    assert record_after(decision, before, failure, cluster()) == after


@pytest.mark.parametrize(
    ("problem", "http_status", "older"),
    [
        (StepProblem.TOO_MANY_BUCKETS, 400, VOID),
        (StepProblem.QUOTA, 400, VOID),
        (StepProblem.BUCKET_SETTING, 400, VOID),
        (StepProblem.VANISHED, 404, VOID),
        (StepProblem.BUSY, 429, INTENT),  # perhaps with the older creation
        (StepProblem.BEING_DELETED, 500, INTENT),
    ],
)
def test_a_refused_creation_voids_the_intent(problem: StepProblem, http_status: int, older: BucketRecord) -> None:
    decision, failure = creation(None)
    refused = replace(failure, problem=problem, http_status=http_status)
    assert not wants_look_after(decision, None, refused)
    assert record_after(decision, None, refused, None) == VOID
    decision, _ = creation(INTENT)
    assert wants_look_after(decision, INTENT, refused) is (older == VOID)
    assert record_after(decision, INTENT, refused, cluster()) == older
    decision, _ = creation(OWNED)
    assert record_after(decision, OWNED, refused, cluster()) == OWNED


@pytest.mark.parametrize(
    "seen",
    [
        None,
        CouchbaseTrouble(Trouble.UNREACHABLE, "Gone."),
        replace(cluster(), cluster_uuid="elsewhere"),
        replace(cluster(), bucket=FRESH),
    ],
)
def test_an_older_intent_is_void_only_when_a_look_after_the_refusal_shows_no_bucket(
    seen: CouchbaseState | CouchbaseTrouble | None,
) -> None:
    decision, failure = creation(INTENT)
    refused = replace(failure, problem=StepProblem.TOO_MANY_BUCKETS, http_status=400)
    assert record_after(decision, INTENT, refused, seen) == INTENT


@pytest.mark.parametrize(
    ("kind", "older"),
    [(Trouble.BAD_CREDENTIALS, VOID), (Trouble.NOT_PERMITTED, VOID), (Trouble.UNREACHABLE, INTENT)],
)
def test_a_creation_that_was_never_sent_voids_an_older_intent_only_when_it_was_refused(
    kind: Trouble, older: BucketRecord
) -> None:
    unsent = CouchbaseTrouble(kind, "No.", changed_nothing=True)
    decision, _ = creation(INTENT)
    assert record_after(decision, INTENT, unsent, cluster()) == older


@pytest.mark.parametrize("kind", [Trouble.BAD_CREDENTIALS, Trouble.UNREACHABLE])
def test_a_creation_that_was_never_sent_voids_the_intent(kind: Trouble) -> None:
    decision, _ = creation(None)
    unsent = CouchbaseTrouble(kind, "No.", changed_nothing=True)
    assert record_after(decision, None, unsent, None) == VOID


@pytest.mark.parametrize(
    "outcome",
    [
        None,
        CouchbaseTrouble(Trouble.UNREACHABLE, "Gone."),
        *((StepProblem.BUSY, status) for status in (502, 503, 504)),
        (StepProblem.UNEXPECTED, 500),
        (StepProblem.UNEXPECTED, 408),
    ],
)
def test_an_answer_that_proves_nothing_keeps_the_intent(
    outcome: tuple[StepProblem, int] | CouchbaseTrouble | None,
) -> None:
    decision, failure = creation(None)
    if isinstance(outcome, tuple):
        outcome = replace(failure, problem=outcome[0], http_status=outcome[1])
    assert record_after(decision, None, outcome, None) == INTENT
    assert record_after(decision, INTENT, outcome, cluster()) == INTENT
