"""Conditions as metav1 wants them, and only real changes count."""

from __future__ import annotations

from couchbase_lm_operator.api.conditions import (
    Condition,
    ConditionStatus,
    ConditionType,
    changed,
    find,
    is_true,
    merged,
)

TRUE, FALSE, UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN


def _ready(status: ConditionStatus, reason: str = "Reason", message: str = "Text.", generation: int = 1) -> Condition:
    return Condition(ConditionType.READY, status, reason, message, generation)


def test_the_transition_time_moves_only_with_the_status() -> None:
    first = merged([], [_ready(FALSE)], "2026-01-01T00:00:00Z")
    same = merged(first, [_ready(FALSE, "Other", "New text.", 2)], "2026-01-02T00:00:00Z")
    assert same[0]["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert (same[0]["reason"], same[0]["observedGeneration"]) == ("Other", 2)
    flipped = merged(same, [_ready(TRUE)], "2026-01-03T00:00:00Z")
    assert flipped[0]["lastTransitionTime"] == "2026-01-03T00:00:00Z"


def test_what_is_not_wanted_any_more_is_dropped_and_the_order_is_fixed() -> None:
    stalled = Condition(ConditionType.STALLED, TRUE, "Reason", "Text.", 1)
    cache = Condition(ConditionType.CACHE_HEALTHY, TRUE, "Reason", "Text.", 1)
    before = merged([], [cache, stalled, _ready(FALSE)], "2026-01-01T00:00:00Z")
    assert [each["type"] for each in before] == ["Ready", "Stalled", "CacheHealthy"]
    after = merged(before, [cache, _ready(TRUE)], "2026-01-02T00:00:00Z")
    assert [each["type"] for each in after] == ["Ready", "CacheHealthy"]


def test_an_unchanged_list_is_equal_text() -> None:
    before = merged([], [_ready(TRUE)], "2026-01-01T00:00:00Z")
    assert merged(before, [_ready(TRUE)], "2026-06-01T00:00:00Z") == before


def test_changes_are_those_of_status_or_reason() -> None:
    before = merged([], [_ready(FALSE)], "2026-01-01T00:00:00Z")
    assert changed(before, merged(before, [_ready(FALSE, message="Other words.")], "2026-01-02T00:00:00Z")) == []
    assert changed(before, merged(before, [_ready(FALSE, "Other")], "2026-01-02T00:00:00Z"))[0]["reason"] == "Other"
    assert changed([], merged([], [_ready(UNKNOWN)], "2026-01-01T00:00:00Z")) == []


def test_a_condition_is_found_by_type() -> None:
    conditions = merged([], [_ready(TRUE)], "2026-01-01T00:00:00Z")
    assert is_true(conditions, ConditionType.READY)
    assert find(conditions, ConditionType.STALLED) is None
    assert not is_true(conditions, ConditionType.STALLED)
