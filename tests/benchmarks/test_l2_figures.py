"""From measured rounds to the figures that others read: which fields, and the right number in each."""

from __future__ import annotations

from dataclasses import asdict

from benchmarks.l2.contenders import OPERATIONS, Round
from benchmarks.l2.figures import figures_of, find
from benchmarks.l2.workloads import LARGE, LOOKUP

MIB = 1 << 20


def runs_of(*seconds: float) -> list[dict[str, list[Round]]]:
    """Return a run of one round for each duration, whose CPU time is half of it."""
    return [{name: [Round(each, each / 2, 7 * MIB)] for name in OPERATIONS} for each in seconds]


def test_a_row_has_the_nine_promised_fields_and_medians_of_the_runs() -> None:
    store, lookup, load = figures_of("direct", LARGE, runs_of(0.1, 0.4, 0.2))
    gigabytes = LARGE.objects * LARGE.object_bytes / 1e9
    assert asdict(load) == {
        "adapter": "direct",
        "operation": "load",
        "object_bytes": LARGE.object_bytes,
        "objects": LARGE.objects,
        "gigabytes_per_second": round(gigabytes / 0.2, 4),
        "client_cpu_seconds_per_gigabyte": round(0.1 / gigabytes, 4),
        "latency_ms_p50": 200.0,
        "latency_ms_p99": 400.0,
        "peak_extra_rss_bytes": 7 * MIB,
    }
    assert (store.operation, lookup.operation) == ("store", "lookup")
    assert lookup.gigabytes_per_second is None
    assert lookup.client_cpu_seconds_per_gigabyte is None


def test_a_workload_of_lookups_says_nothing_of_stores() -> None:
    figures = figures_of("resp", LOOKUP, runs_of(0.001))
    assert [each.operation for each in figures] == ["lookup"]
    assert find(figures, "resp", "lookup", LOOKUP, "latency_ms_p50") == 1.0
    assert find(figures, "direct", "lookup", LOOKUP, "latency_ms_p50") is None
