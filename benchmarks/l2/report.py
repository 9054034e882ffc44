"""The result for people: Markdown tables."""

from collections.abc import Iterable, Sequence

from benchmarks.l2.contenders import TITLES
from benchmarks.l2.figures import Figure
from benchmarks.l2.targets import TARGETS, Target
from benchmarks.l2.workloads import MIB, size_text

_FIGURE_COLUMNS = ("operation", "objects", "adapter", "GB/s", "client CPU s/GB", "p50 ms", "p99 ms", "peak extra MiB")


def figure_table(figures: Sequence[Figure]) -> str:
    """All figures, those that compare with each other next to each other."""
    groups = dict.fromkeys((one.operation, one.object_bytes, one.objects) for one in figures)
    rows = [
        _figure_row(one)
        for group in groups
        for one in figures
        if (one.operation, one.object_bytes, one.objects) == group
    ]
    return _table(_FIGURE_COLUMNS, rows)


def target_table(figures: Sequence[Figure]) -> str:
    """What must be reached, what was, and the same value on other workloads for information."""
    return _table(
        ("figure", "wanted", "measured", "reached", "by workload"), (_target_row(one, figures) for one in TARGETS)
    )


def _figure_row(figure: Figure) -> tuple[str, ...]:
    return (
        figure.operation,
        f"{figure.objects} x {size_text(figure.object_bytes)}",
        TITLES[figure.adapter],
        _number(figure.gigabytes_per_second),
        _number(figure.client_cpu_seconds_per_gigabyte),
        _number(figure.latency_ms_p50),
        _number(figure.latency_ms_p99),
        f"{figure.peak_extra_rss_bytes / MIB:.1f}",
    )


def _target_row(target: Target, figures: Sequence[Figure]) -> tuple[str, ...]:
    worst = target.worst(figures)
    values = ((workload.title, target.value(figures, workload)) for workload in target.shown)
    shown = ", ".join(f"{title}: {value:.2f}" for title, value in values if value is not None)
    if worst is None:
        return (target.title, target.wanted, "-", "not measured", shown)
    return (
        target.title,
        target.wanted,
        f"{worst:.2f}{target.unit}",
        "yes" if target.is_reached(worst) else "**no**",
        shown,
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
