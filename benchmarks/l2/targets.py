"""What the direct transport must reach, and whether it did."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.l2.contenders import FLOOR
from benchmarks.l2.figures import Figure, find
from benchmarks.l2.workloads import LARGE, LOOKUP, MIB, WORKLOADS, Workload

_CONTENT = tuple(workload for workload in WORKLOADS if not workload.is_lookup_only)
Value = Callable[[Sequence[Figure], Workload], float | None]


@dataclass(frozen=True)
class Target:
    """A limit on a value.

    Attributes:
        value: computes it for one workload; None when a part was not measured.
        judged: the workloads on which the limit must hold; the worst counts.
        shown: further ones, for information.
    """

    title: str
    limit: float
    unit: str
    is_lower_better: bool
    value: Value
    judged: tuple[Workload, ...] = (LARGE,)
    shown: tuple[Workload, ...] = _CONTENT

    @property
    def wanted(self) -> str:
        """The limit, for people."""
        return f"{'≤' if self.is_lower_better else '≥'} {self.limit:g}{self.unit}"

    def worst(self, figures: Sequence[Figure]) -> float | None:
        """Value on which the limit is judged; None when it was not measured everywhere."""
        values = [self.value(figures, workload) for workload in self.judged]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return None
        return max(known) if self.is_lower_better else min(known)

    def is_reached(self, value: float) -> bool:
        """Whether a value is within the limit."""
        return value <= self.limit if self.is_lower_better else value >= self.limit


def _ratio(operation: str, other: str) -> Value:
    def value(figures: Sequence[Figure], workload: Workload) -> float | None:
        ours = find(figures, "direct", operation, workload, "gigabytes_per_second")
        theirs = find(figures, other, operation, workload, "gigabytes_per_second")
        return ours / theirs if ours and theirs else None

    return value


def _own(operation: str, field: str) -> Value:
    return lambda figures, workload: find(figures, "direct", operation, workload, field)


def _peak_mebibytes(figures: Sequence[Figure], workload: Workload) -> float | None:
    peaks = [find(figures, "direct", name, workload, "peak_extra_rss_bytes") for name in ("store", "lookup", "load")]
    known = [peak for peak in peaks if peak is not None]
    return max(known) / MIB if known else None


TARGETS = (
    Target("load, direct against RESP on Redis", 2.0, "x", False, _ratio("load", "resp")),
    Target("load, direct against the bare sockets", 0.8, "x", False, _ratio("load", FLOOR)),
    Target("store, direct against RESP on Redis", 2.0, "x", False, _ratio("store", "resp")),
    Target("client CPU per GB loaded, direct", 0.3, " s", True, _own("load", "client_cpu_seconds_per_gigabyte")),
    Target("lookup of 40, p50, direct", 2.0, " ms", True, _own("lookup", "latency_ms_p50"), (LOOKUP,), (LOOKUP,)),
    Target("peak memory beyond L1, direct", 32.0, " MiB", True, _peak_mebibytes, WORKLOADS),
)
