"""Events tell changes once, and trouble as a warning."""

from __future__ import annotations

from typing import Any

from couchbase_lm_operator.core.happenings import happenings


def _status(**conditions: tuple[str, str]) -> dict[str, Any]:
    return {
        "conditions": [
            {"type": kind, "status": status, "reason": reason, "message": f"{reason}."}
            for kind, (status, reason) in conditions.items()
        ]
    }


def test_nothing_changed_is_nothing_to_tell() -> None:
    status = _status(Ready=("True", "Serving"))
    assert happenings(status, status) == []


def test_one_reason_is_told_once() -> None:
    after = _status(Ready=("False", "Busy"), Reconciling=("True", "Busy"), BucketReady=("False", "Busy"))
    assert [(each.kind, each.reason) for each in happenings({}, after)] == [("Normal", "Busy")]


def test_a_stalled_resource_and_lost_couchbase_are_warnings() -> None:
    stalled = _status(Ready=("False", "Refused"), Stalled=("True", "Refused"))
    assert [each.kind for each in happenings({}, stalled)] == ["Warning"]
    lost = _status(CacheHealthy=("False", "CacheUnreachable"))
    assert [each.kind for each in happenings(_status(CacheHealthy=("True", "CacheHealthy")), lost)] == ["Warning"]


def test_a_new_warning_is_told_once_and_its_end_is_not() -> None:
    first = {"reason": "NeverCached", "message": "Contexts of 100 tokens are never cached."}
    warned = {"conditions": [], "warnings": [first]}
    told = happenings({}, warned)
    assert [(each.kind, each.reason, each.message) for each in told] == [("Warning", *first.values())]
    assert happenings(warned, warned) == []
    assert happenings(warned, {"conditions": []}) == []
    changed = {"reason": "NeverCached", "message": "Contexts of 200 tokens are never cached."}
    assert len(happenings(warned, {"conditions": [], "warnings": [changed]})) == 1


def test_what_is_not_known_is_not_told() -> None:
    assert happenings(_status(BucketReady=("True", "BucketReady")), _status(BucketReady=("Unknown", "Waits"))) == []
