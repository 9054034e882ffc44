"""The result for people: Markdown tables and a picture."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import matplotlib as mpl

from benchmarks.device.figures import Figure, Target, ratio
from benchmarks.device.workloads import DIRECTIONS, HEAD_MAJOR, IMPLEMENTATIONS, WORKLOADS, Workload

mpl.use("Agg")

from matplotlib import pyplot

TARGETS = (
    Target("native against the machine's copy, every shape and direction", "copy", 0.6, WORKLOADS),
    Target(
        "native against the baseline, head-major stores of Llama-3.1-8B",
        "torch",
        4.0,
        tuple(one for one in WORKLOADS if one.shape == "Llama-3.1-8B" and one.layout in HEAD_MAJOR),
        ("store",),
    ),
)
_COLOURS = {"native": "#c0392b", "torch": "#2471a3", "copy": "#7f8c8d"}


def figure_table(figures: Sequence[Figure]) -> str:
    """Speeds of all implementations, and the ratios that are judged."""
    columns = ("shape", "layout", "direction", *(f"{name} GB/s" for name in IMPLEMENTATIONS), "by copy", "by torch")
    return _table(columns, (_row(figures, *place) for place in _places(figures)))


def target_table(figures: Sequence[Figure]) -> str:
    """What must be reached, and the least that was."""
    return _table(("figure", "wanted", "measured", "reached", "where"), (_target_row(one, figures) for one in TARGETS))


def draw(figures: Sequence[Figure], path: Path) -> None:
    """Write the picture as PNG: a panel for each direction."""
    canvas, panels = pyplot.subplots(1, len(DIRECTIONS), figsize=(15, 6.5), layout="constrained", sharey=True)
    width = 0.8 / len(IMPLEMENTATIONS)
    for panel, direction in zip(panels, DIRECTIONS, strict=True):
        workloads = [workload for workload, its_direction in _places(figures) if its_direction == direction]
        for number, name in enumerate(IMPLEMENTATIONS):
            places = [place + (number - 1) * width for place in range(len(workloads))]
            panel.bar(
                places,
                [_speed(figures, one, direction, name) for one in workloads],
                width,
                label=name,
                color=_COLOURS[name],
            )
        names = [f"{one.shape}\n{one.layout.title}" for one in workloads]
        panel.set_xticks(range(len(workloads)), names, rotation=90, fontsize=8)
        panel.set_title(f"{direction}, GB/s")
        panel.spines[["top", "right"]].set_visible(False)
    handles, labels = panels[0].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside upper center", ncols=len(IMPLEMENTATIONS), frameon=False)
    canvas.savefig(path, dpi=120)
    pyplot.close(canvas)


def _places(figures: Sequence[Figure]) -> list[tuple[Workload, str]]:
    places = [(workload, direction) for workload in WORKLOADS for direction in DIRECTIONS]
    return [place for place in places if ratio(figures, *place, "copy") is not None]


def _speed(figures: Sequence[Figure], workload: Workload, direction: str, implementation: str) -> float:
    wanted = (workload.shape, workload.layout.title, direction, implementation)
    return next(
        one.gigabytes_per_second
        for one in figures
        if (one.shape, one.layout, one.direction, one.implementation) == wanted
    )


def _row(figures: Sequence[Figure], workload: Workload, direction: str) -> tuple[str, ...]:
    speeds = (f"{_speed(figures, workload, direction, name):.2f}" for name in IMPLEMENTATIONS)
    ratios = (f"{ratio(figures, workload, direction, other) or 0:.2f}" for other in ("copy", "torch"))
    return (workload.shape, workload.layout.title, direction, *speeds, *ratios)


def _target_row(target: Target, figures: Sequence[Figure]) -> tuple[str, ...]:
    worst = target.worst(figures)
    wanted = f"≥ {target.limit:g}x"
    if worst is None:
        return (target.title, wanted, "-", "not measured", "")
    value, place = worst
    return (target.title, wanted, f"{value:.2f}x", "yes" if value >= target.limit else "**no**", place)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
