"""The result as a picture: speed and client CPU of each adapter, by size of the objects."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

from benchmarks.l2.contenders import CONTENDERS, TITLES
from benchmarks.l2.figures import Figure, find
from benchmarks.l2.workloads import WORKLOADS

mpl.use("Agg")

from matplotlib import pyplot

_PANELS = (
    ("load", "gigabytes_per_second", "load, GB/s"),
    ("store", "gigabytes_per_second", "store, GB/s"),
    ("load", "client_cpu_seconds_per_gigabyte", "client CPU per GB loaded, s"),
)
_COLOURS = {"direct": "#c0392b", "sdk": "#e59866", "resp": "#2471a3", "fs": "#7f8c8d", "floor": "#1c2833"}


def draw(figures: Sequence[Figure], path: Path) -> None:
    """Write the picture as PNG."""
    workloads = [workload for workload in WORKLOADS if not workload.is_lookup_only]
    shown = [name for name in CONTENDERS if any(figure.adapter == name for figure in figures)]
    canvas, panels = pyplot.subplots(1, len(_PANELS), figsize=(15, 4.5), layout="constrained")
    width = 0.8 / len(shown)
    for panel, (operation, field, title) in zip(panels, _PANELS, strict=True):
        for number, name in enumerate(shown):
            places = [place + (number - (len(shown) - 1) / 2) * width for place in range(len(workloads))]
            values = [find(figures, name, operation, workload, field) or 0.0 for workload in workloads]
            panel.bar(places, values, width, label=TITLES[name], color=_COLOURS[name])
        panel.set_xticks(range(len(workloads)), [workload.title for workload in workloads])
        panel.set_title(title)
        panel.spines[["top", "right"]].set_visible(False)
    handles, labels = panels[0].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside lower center", ncols=len(shown), frameon=False)
    canvas.savefig(path, dpi=120)
    pyplot.close(canvas)
