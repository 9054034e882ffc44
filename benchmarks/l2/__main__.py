"""Measure the L2 adapter against LMCache's own ones and against bare sockets, in one run on one machine.

Writes into .local/bench: l2.json (figures), l2-rounds.json (every round), l2.md and l2.png.
"""

import argparse
import dataclasses
import json
import sys
import time

from benchmarks.l2.contenders import CONTENDERS, Rounds, measure
from benchmarks.l2.figures import Figure, figures_of, summary
from benchmarks.l2.plot import draw
from benchmarks.l2.report import figure_table, target_table
from benchmarks.l2.servers import BenchmarkError
from benchmarks.l2.workloads import WORKLOADS, Workload
from e2e.bootstrap import ROOT
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import Progress
from e2e.engine import environment

OUTPUT = ROOT / ".local" / "bench"
PROGRESS = Progress("bench")
_RUNS, _QUICK_RUNS = 5, 1

Measured = dict[tuple[str, Workload], list[Rounds]]


def measure_all(contenders: list[str], workloads: list[Workload], runs: int) -> Measured:
    """Measure everything `runs` times.

    The contenders take turns, beginning with another one each time: what else the machine does in the meantime
    must not fall on one of them alone.

    Raises:
        BenchmarkError: a run failed.
    """
    measured: Measured = {(name, workload): [] for workload in workloads for name in contenders}
    for run in range(runs):
        for workload in workloads:
            first = run % len(contenders)
            for name in contenders[first:] + contenders[:first]:
                started = time.monotonic()
                rounds = measure(name, workload)
                measured[name, workload].append(rounds)
                took = f"({time.monotonic() - started:.0f} s)"
                PROGRESS.say(f"run {run + 1}/{runs}, {workload.title}, {name}: {summary(rounds, workload)} {took}")
    return measured


def write(measured: Measured, runs: int) -> list[Figure]:
    """Write all files and return the figures."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    figures = [one for (name, workload), results in measured.items() for one in figures_of(name, workload, results)]
    every_round = [
        {
            "adapter": name,
            "object_bytes": workload.object_bytes,
            "objects": workload.objects,
            "run": number,
            **{operation: [dataclasses.asdict(one) for one in rounds] for operation, rounds in result.items()},
        }
        for (name, workload), results in measured.items()
        for number, result in enumerate(results)
    ]
    for file_name, content in (
        ("l2.json", [dataclasses.asdict(one) for one in figures]),
        ("l2-rounds.json", every_round),
    ):
        (OUTPUT / file_name).write_text(json.dumps(content, indent=1) + "\n")
    note = f"Median of {runs} run{'s' if runs > 1 else ''}; how each figure is measured: benchmarks/l2/README.md.\n"
    (OUTPUT / "l2.md").write_text("\n".join((note, target_table(figures), figure_table(figures))))
    draw(figures, OUTPUT / "l2.png")
    return figures


def main() -> int:
    """Run what was asked for; returns the exit status. A target that is not reached is a result, not a failure."""
    titles = [workload.title.replace(" ", "") for workload in WORKLOADS]
    parser = argparse.ArgumentParser(
        prog="benchmarks/l2/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--adapters", nargs="+", choices=CONTENDERS, default=list(CONTENDERS), help="default: all")
    parser.add_argument("--workloads", nargs="+", choices=titles, default=titles, help="default: all")
    parser.add_argument("--runs", type=int, default=_RUNS, help=f"default: {_RUNS}; each has several rounds")
    parser.add_argument(
        "--quick", action="store_true", help=f"{_QUICK_RUNS} run: to see that it works, not for figures"
    )
    arguments = parser.parse_args()
    runs = _QUICK_RUNS if arguments.quick else arguments.runs
    if runs < 1:
        parser.error("--runs must be at least 1")
    workloads = [workload for workload, title in zip(WORKLOADS, titles, strict=True) if title in arguments.workloads]
    try:
        environment.ensure()
        with PROGRESS.step(f"{len(arguments.adapters) * len(workloads) * runs} measurements of about 10 s each"):
            measured = measure_all(list(dict.fromkeys(arguments.adapters)), workloads, runs)
    except (BenchmarkError, ClusterError) as error:
        PROGRESS.say(f"failed: {error}")
        return 1
    figures = write(measured, runs)
    sys.stdout.write(f"\n{figure_table(figures)}\n{target_table(figures)}\n")
    PROGRESS.say(f"figures, every round, tables and plot: {OUTPUT.relative_to(ROOT)}/l2{{.json,-rounds.json,.md,.png}}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
