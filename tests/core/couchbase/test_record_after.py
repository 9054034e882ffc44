"""Whose a bucket is when the server says that its name is taken."""

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


@pytest.mark.parametrize("problem", [None, StepProblem.BUSY, CouchbaseTrouble(Trouble.UNREACHABLE, "Gone.")])
def test_any_other_outcome_keeps_the_intent(problem: StepProblem | CouchbaseTrouble | None) -> None:
    decision, failure = creation(None)
    outcome = replace(failure, problem=problem) if isinstance(problem, StepProblem) else problem
    assert record_after(decision, None, outcome) == INTENT
