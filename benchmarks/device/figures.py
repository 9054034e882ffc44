"""From rounds to figures: the best round of each implementation. A GB is 10^9 bytes of payload."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.device.workloads import DIRECTIONS, IMPLEMENTATIONS, Workload

Rounds = list[dict[str, float]]
Measured = Mapping[tuple[Workload, str], Rounds]
"""For each workload and direction the rounds; a round holds each implementation's seconds."""


@dataclass(frozen=True)
class Figure:
    """One row of the result."""

    shape: str
    layout: str
    direction: str
    implementation: str
    gigabytes_per_second: float


def figures_of(measured: Measured) -> list[Figure]:
    """Return all figures."""
    return [
        Figure(workload.shape, workload.layout.title, direction, name, round(speed(workload, rounds, name), 3))
        for (workload, direction), rounds in measured.items()
        for name in IMPLEMENTATIONS
    ]


def speed(workload: Workload, rounds: Rounds, implementation: str) -> float:
    """GB per second of the best round: what else the machine does can only make a round slower."""
    return workload.payload_bytes / min(one[implementation] for one in rounds) / 1e9


def ratio(figures: Sequence[Figure], workload: Workload, direction: str, other: str) -> float | None:
    """Native speed by that of another implementation; None when it was not measured."""
    found = {
        figure.implementation: figure.gigabytes_per_second
        for figure in figures
        if (figure.shape, figure.layout, figure.direction) == (workload.shape, workload.layout.title, direction)
    }
    return found["native"] / found[other] if found else None


@dataclass(frozen=True)
class Target:
    """The least that the ratio of native speed to another implementation's must be."""

    title: str
    other: str
    limit: float
    workloads: tuple[Workload, ...]
    directions: tuple[str, ...] = DIRECTIONS

    def worst(self, figures: Sequence[Figure]) -> tuple[float, str] | None:
        """Return the least ratio and where it was measured; None unless all was measured."""
        found = [
            (ratio(figures, workload, direction, self.other), f"{workload.shape}, {workload.layout.title}, {direction}")
            for workload in self.workloads
            for direction in self.directions
        ]
        known = [(value, place) for value, place in found if value is not None]
        return min(known) if known and len(known) == len(found) else None
