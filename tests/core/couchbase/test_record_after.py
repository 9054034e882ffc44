"""Whose a bucket of that name is after its creation went wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from couchbase_lm_operator.core.couchbase.provisioning import ProvisioningDecision, decide, record_after
from couchbase_lm_operator.core.couchbase.provisioning_trouble import StepFailure, StepProblem
from couchbase_lm_operator.core.couchbase_state import BucketRecord, CouchbaseTrouble, Trouble
from tests.core.couchbase.test_bucket_quota import cluster
from tests.provisioning.arm import BUCKET, couchbase_goal

INTENT = BucketRecord(BUCKET, "c")
OWNED = replace(INTENT, uuid="b1", created=True)


def creation(before: BucketRecord | None) -> tuple[ProvisioningDecision, StepFailure]:
    goal = couchbase_goal("couchbase://cb", (), record=before)
    decision = decide(goal, cluster(), credentials_present=True, generation=1)
    return decision, StepFailure(decision.steps[0], StepProblem.NAME_TAKEN)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, replace(INTENT, cluster_uuid="")),  # void: it was recorded just now
        (replace(OWNED, cluster_uuid="elsewhere"), replace(INTENT, cluster_uuid="")),
        (INTENT, INTENT),  # an earlier pass may have made it and died
        (OWNED, OWNED),  # its UUID tells next time whose it is
    ],
)
def test_a_taken_name(before: BucketRecord | None, after: BucketRecord) -> None:
    decision, failure = creation(before)
    assert record_after(decision, before, failure) == after


@pytest.mark.parametrize(
    ("problem", "http_status"),
    [
        (StepProblem.TOO_MANY_BUCKETS, 400),
        (StepProblem.QUOTA, 400),
        (StepProblem.BUCKET_SETTING, 400),
        (StepProblem.VANISHED, 404),
        (StepProblem.BUSY, 429),
        (StepProblem.BEING_DELETED, 500),
    ],
)
def test_a_refused_creation_voids_the_intent(problem: StepProblem, http_status: int) -> None:
    decision, failure = creation(None)
    refused = replace(failure, problem=problem, http_status=http_status)
    assert record_after(decision, None, refused) == replace(INTENT, cluster_uuid="")
    decision, _ = creation(INTENT)
    assert record_after(decision, INTENT, refused) == INTENT
    decision, _ = creation(OWNED)
    assert record_after(decision, OWNED, refused) == OWNED


@pytest.mark.parametrize("kind", [Trouble.BAD_CREDENTIALS, Trouble.UNREACHABLE])
def test_a_creation_that_was_never_sent_voids_the_intent(kind: Trouble) -> None:
    decision, _ = creation(None)
    unsent = CouchbaseTrouble(kind, "No.", changed_nothing=True)
    assert record_after(decision, None, unsent) == replace(INTENT, cluster_uuid="")


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
    assert record_after(decision, None, outcome) == INTENT
