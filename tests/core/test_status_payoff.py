"""Whether the cache pays off is told of the pods in effect: as predicted, until they have really loaded."""

from __future__ import annotations

from typing import Any

import pytest

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.children.readiness import WorkloadState
from couchbase_lm_operator.core.children.template_pin import Pin
from couchbase_lm_operator.core.facts import template_facts
from couchbase_lm_operator.core.progress import Progress
from couchbase_lm_operator.core.status import build_status
from couchbase_lm_operator.core.verdict import Proceed
from tests.core.planning import QWEN3_8B, config_of, observed_with, plan_of, spec_of

NOW = "2026-01-01T00:00:00Z"
PLAN = plan_of(spec_of())


def _status(facts: dict[str, Any], previous: dict[str, Any], *, is_pinned: bool = True) -> dict[str, Any]:
    observed = observed_with(config_of(QWEN3_8B))
    observed.resource["status"] = previous
    progress = Progress(
        observed=observed,
        is_suspended=False,
        plan=PLAN,
        verdict=Proceed(),
        provisioned=None,
        workload=WorkloadState(is_available=True, is_stuck=False, reason=Reason.WORKLOAD_AVAILABLE, message=""),
        pin=Pin("r1", "", {}, facts, {}) if is_pinned else None,
        cache=None,
    )
    return build_status(progress, NOW)


def _seen(bytes_per_second: int | None) -> dict[str, Any]:
    size = template_facts(PLAN)["model"]["objectBytes"]
    block = {"revision": "r1", "objectBytes": size, "ranks": 1, "loadBytesPerSecond": bytes_per_second}
    return {"observation": {name: value for name, value in block.items() if value is not None}}


@pytest.mark.parametrize("previous", [{}, _seen(None)])
def test_the_prediction_stands_until_loads_were_seen(previous: dict[str, Any]) -> None:
    status = _status(template_facts(PLAN), previous)
    assert status["capacity"]["loadTime"] == "0.6s"
    assert status["capacity"]["worthwhile"] is True
    assert "warnings" not in status


def test_real_loads_that_are_slower_than_computing_are_told_and_warned_about() -> None:
    status = _status(template_facts(PLAN), _seen(100_000_000))
    assert (status["capacity"]["loadTime"], status["capacity"]["worthwhile"]) == ("12s", False)
    assert [each["reason"] for each in status["warnings"]] == ["NotWorthwhile"]
    # a steady resource is not written
    assert _status(template_facts(PLAN), status) == status


def test_pods_of_an_older_operator_keep_what_it_knew() -> None:
    facts = template_facts(PLAN)
    del facts["payoff"], facts["capacity"]["loadTime"]
    facts["model"]["objectBytes"] = facts["model"]["objectBytes"][0]
    status = _status(facts, {"model": {"objectBytes": 1}})
    assert status["model"]["objectBytes"] == [256 * 147_456]
    assert "loadTime" not in status["capacity"]


def test_what_loads_showed_stays_while_no_template_is_decided() -> None:
    slow = _status(template_facts(PLAN), _seen(10_000_000))
    assert [each["reason"] for each in slow["warnings"]] == [Reason.NOT_WORTHWHILE]
    again = _status(template_facts(PLAN), slow, is_pinned=False)
    assert (again["warnings"], again["observation"]) == (slow["warnings"], slow["observation"])
