"""Measure the device backend's transfers against LMCache's torch baseline and against plain copies, in one run.

Writes into .local/bench: device.json (figures), device-rounds.json (every round), device.md and device.png.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
from collections import defaultdict

from benchmarks.device.figures import Figure, Measured, Rounds, figures_of, speed
from benchmarks.device.report import draw, figure_table, target_table
from benchmarks.device.workloads import DIRECTIONS, IMPLEMENTATIONS, WORKLOADS, Workload
from e2e.bootstrap import ROOT
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import Progress
from e2e.engine import device, environment

OUTPUT = ROOT / ".local" / "bench"
PROGRESS = Progress("bench")
_ROUNDS, _QUICK_ROUNDS = 9, 2
_PROCESS_SECONDS = 600.0
_LAST_LINES = 20


class BenchmarkError(Exception):
    """A workload could not be measured; the message holds the last lines of what its process said."""


def measure_all(workloads: list[Workload], rounds: int) -> Measured:
    """Measure each workload in a process of its own.

    Raises:
        BenchmarkError: a process failed, or a native transfer left other bytes than the baseline.
    """
    measured: dict[tuple[Workload, str], Rounds] = {}
    for workload in workloads:
        for direction, its_rounds in _measure(workload, rounds).items():
            measured[workload, direction] = its_rounds
            shown = ", ".join(f"{name} {speed(workload, its_rounds, name):.2f}" for name in IMPLEMENTATIONS)
            PROGRESS.say(f"{workload.shape}, {workload.layout.title}, {direction}: {shown} GB/s")
    return measured


def write(measured: Measured, rounds: int) -> list[Figure]:
    """Write all files and return the figures."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    figures = figures_of(measured)
    every_round = [
        {
            "shape": workload.shape,
            "layout": workload.layout.title,
            "direction": direction,
            "payload_bytes": workload.payload_bytes,
            "seconds": its_rounds,
        }
        for (workload, direction), its_rounds in measured.items()
    ]
    for name, content in (
        ("device.json", [dataclasses.asdict(one) for one in figures]),
        ("device-rounds.json", every_round),
    ):
        (OUTPUT / name).write_text(json.dumps(content, indent=1) + "\n")
    note = f"Best of {rounds} rounds; how each figure is measured: benchmarks/device/README.md.\n"
    (OUTPUT / "device.md").write_text("\n".join((note, target_table(figures), figure_table(figures))))
    draw(figures, OUTPUT / "device.png")
    return figures


def main() -> int:
    """Run what was asked for; returns the exit status. A target that is not reached is a result, not a failure."""
    parser = argparse.ArgumentParser(
        prog="benchmarks/device/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    shapes = list(dict.fromkeys(workload.shape for workload in WORKLOADS))
    parser.add_argument("--shapes", nargs="+", choices=shapes, default=shapes, help="default: all")
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help=f"default: {_ROUNDS}")
    parser.add_argument(
        "--quick", action="store_true", help=f"{_QUICK_ROUNDS} rounds: to see that it works, not for figures"
    )
    arguments = parser.parse_args()
    rounds = _QUICK_ROUNDS if arguments.quick else arguments.rounds
    if rounds < 1:
        parser.error("--rounds must be at least 1")
    workloads = [workload for workload in WORKLOADS if workload.shape in arguments.shapes]
    try:
        device.ensure()
        with PROGRESS.step(f"{len(workloads)} caches, {len(DIRECTIONS)} directions, {rounds} rounds"):
            measured = measure_all(workloads, rounds)
    except (BenchmarkError, ClusterError) as error:
        PROGRESS.say(f"failed: {error}")
        return 1
    figures = write(measured, rounds)
    sys.stdout.write(f"\n{figure_table(figures)}\n{target_table(figures)}\n")
    PROGRESS.say(f"figures, rounds, tables and plot: {OUTPUT.relative_to(ROOT)}/device{{.json,-rounds.json,.md,.png}}")
    return 0


def _measure(workload: Workload, rounds: int) -> dict[str, Rounds]:
    number = str(WORKLOADS.index(workload))
    command = [str(environment.python()), "-m", "benchmarks.device.transfers", number, str(rounds)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(device.SITE))), "LMCACHE_LOG_LEVEL": "ERROR"},
        capture_output=True,
        text=True,
        timeout=_PROCESS_SECONDS,
        check=False,
    )
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-_LAST_LINES:])
        raise BenchmarkError(f"{workload.shape}, {workload.layout.title}: exit status {done.returncode}\n{last}")
    found: dict[str, Rounds] = defaultdict(list)
    for line in done.stdout.splitlines():
        if line.startswith("{"):  # LMCache may log to standard output as well
            one = json.loads(line)
            found[one["direction"]].append(one["seconds"])
    return found


if __name__ == "__main__":
    sys.exit(main())
