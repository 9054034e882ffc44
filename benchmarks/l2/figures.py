"""From rounds to figures: median of the runs, percentiles over all rounds. A GB is 10^9 bytes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.l2.contenders import OPERATIONS, Round, Rounds
from benchmarks.l2.workloads import Workload


@dataclass(frozen=True)
class Figure:
    """One row of the result; rates are None for lookups, which move no content."""

    adapter: str
    operation: str
    object_bytes: int
    objects: int
    gigabytes_per_second: float | None
    client_cpu_seconds_per_gigabyte: float | None
    latency_ms_p50: float
    latency_ms_p99: float
    peak_extra_rss_bytes: int


def figures_of(contender: str, workload: Workload, runs: Sequence[Rounds]) -> list[Figure]:
    """Figures of one contender and workload from all its runs."""
    operations = ("lookup",) if workload.is_lookup_only else OPERATIONS
    return [_figure(contender, operation, workload, [run[operation] for run in runs]) for operation in operations]


def find(figures: Sequence[Figure], contender: str, operation: str, workload: Workload, field: str) -> float | None:
    """One value of the result; None when it was not measured."""
    wanted = (contender, operation, workload.object_bytes, workload.objects)
    for figure in figures:
        if (figure.adapter, figure.operation, figure.object_bytes, figure.objects) == wanted:
            value: float | None = getattr(figure, field)
            return value
    return None


def rates(rounds: Sequence[Round], workload: Workload) -> tuple[float, float]:
    """GB per second, and client CPU seconds per GB, of one run."""
    gigabytes = len(rounds) * workload.objects * workload.object_bytes / 1e9
    return gigabytes / sum(one.seconds for one in rounds), sum(one.cpu_seconds for one in rounds) / gigabytes


def summary(rounds: Mapping[str, Sequence[Round]], workload: Workload) -> str:
    """One run in one line."""
    lookup = f"lookup {1000 * median(one.seconds for one in rounds['lookup']):.2f} ms"
    if workload.is_lookup_only:
        return lookup
    return (
        f"store {rates(rounds['store'], workload)[0]:.2f}, load {rates(rounds['load'], workload)[0]:.2f} GB/s, {lookup}"
    )


def _figure(contender: str, operation: str, workload: Workload, runs: Sequence[Sequence[Round]]) -> Figure:
    milliseconds = sorted(1000 * one.seconds for run in runs for one in run)
    speed, cpu = (median(values) for values in zip(*(rates(run, workload) for run in runs), strict=True))
    moves_content = operation != "lookup"
    return Figure(
        adapter=contender,
        operation=operation,
        object_bytes=workload.object_bytes,
        objects=workload.objects,
        gigabytes_per_second=round(speed, 4) if moves_content else None,
        client_cpu_seconds_per_gigabyte=round(cpu, 4) if moves_content else None,
        latency_ms_p50=round(_percentile(milliseconds, 50), 4),
        latency_ms_p99=round(_percentile(milliseconds, 99), 4),
        peak_extra_rss_bytes=max(one.peak_extra_rss_bytes for run in runs for one in run),
    )


def _percentile(ordered: Sequence[float], percent: float) -> float:
    """Nearest rank."""
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]
