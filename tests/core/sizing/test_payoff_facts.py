"""Status tells what was predicted until real loads were seen, then what they took."""

from __future__ import annotations

import pytest

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.sizing import payoff_facts
from couchbase_lm_operator.core.sizing.payoff import Rates, payoff

RATES = Rates(load_bytes_per_second=2e9, prefill_flops_per_second_rank=1e12)
FAST = payoff_facts.to_record(payoff(1000, 10**9, 3 * 10**12, 1, RATES))
SLOW = payoff_facts.to_record(payoff(1000, 10**9, 10**11, 1, RATES))


def test_both_times_are_told_with_two_digits() -> None:
    assert payoff_facts.capacity(FAST, None) == {"loadTime": "0.5s", "recomputeTime": "3s", "worthwhile": True}
    record = {"tokens": 1, "loadedBytes": 1, "loadSeconds": 123.4, "recomputeSeconds": 0.01234}
    assert payoff_facts.capacity(record, None) == {
        "loadTime": "120s",
        "recomputeTime": "0.012s",
        "worthwhile": False,
    }


@pytest.mark.parametrize(("speed", "load_time", "is_worthwhile"), [(10**9, "1s", True), (10**8, "10s", False)])
def test_the_speed_of_real_loads_replaces_the_assumed_one(speed: int, load_time: str, *, is_worthwhile: bool) -> None:
    told = payoff_facts.capacity(FAST, speed)
    assert (told["loadTime"], told["worthwhile"]) == (load_time, is_worthwhile)
    assert told["recomputeTime"] == "3s"


def test_where_nobody_knows_the_work_only_loading_is_told() -> None:
    record = payoff_facts.to_record(payoff(1000, 10**9, None, 1, RATES))
    assert payoff_facts.capacity(record, None) == {"loadTime": "0.5s"}
    assert payoff_facts.warning(record, None) is None


def test_contexts_that_are_never_cached_and_old_records_say_nothing() -> None:
    nothing = payoff_facts.to_record(payoff(0, 0, 0, 1, RATES))
    for record in (nothing, None, {}):
        assert payoff_facts.capacity(record, None) == {}
        assert payoff_facts.warning(record, 10**9) is None


def test_a_cache_that_is_slower_than_computing_is_warned_about() -> None:
    assert payoff_facts.warning(FAST, None) is None
    predicted, observed = payoff_facts.warning(SLOW, None), payoff_facts.warning(FAST, 10**8)
    assert predicted is not None
    assert observed is not None
    assert predicted.reason == observed.reason == Reason.NOT_WORTHWHILE
    assert "is predicted to take 0.5s, computing it again some 0.1s" in predicted.message
    assert "takes, at the speed of real loads, 10s" in observed.message
