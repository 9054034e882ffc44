"""Run groups with pytest in their own environments and add up what pytest itself reports."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from e2e.bootstrap import ROOT, VENV
from e2e.cluster.progress import Progress
from e2e.testing.groups import Group, Need

REPORTS = ROOT / ".local" / "test"
PROGRESS = Progress("test")


@dataclass
class Outcome:
    """The counts of one group, and how long it took in seconds; ``skips`` says what did not run and why."""

    name: str
    passed: int = 0
    failed: int = 0
    skips: list[str] = field(default_factory=list)
    seconds: float = 0.0
    note: str = ""


def run_groups(groups: Sequence[Group]) -> list[Outcome]:
    """Run the lanes side by side, then what runs alone; the outcomes come in the order of the groups.

    What lanes need is made before they begin: tests that measure time must not run beside a compiler.
    """
    lanes: dict[str, list[Group]] = {}
    for group in groups:
        if group.lane:
            lanes.setdefault(group.lane, []).append(group)
    needs = {need[0]: need for lane in lanes.values() for group in lane for need in group.needs}
    unmet = {what for what, need in needs.items() if not _met(need)}
    is_shared = len(lanes) > 1

    def run_lane(lane: Sequence[Group]) -> list[Outcome]:
        return [run_group(group, unmet, is_shared=is_shared) for group in lane]

    outcomes: list[Outcome] = []
    if lanes:
        with ThreadPoolExecutor(len(lanes)) as pool:
            outcomes = [outcome for lane in pool.map(run_lane, lanes.values()) for outcome in lane]
    for group in groups:
        if not group.lane:
            outcomes.append(run_group(group, {need[0] for need in group.needs if not _met(need)}))
    order = [group.name for group in groups]
    return sorted(outcomes, key=lambda outcome: order.index(outcome.name))


def run_group(group: Group, unmet: Collection[str] = (), *, is_shared: bool = False) -> Outcome:
    """Run a group and return its counts; a need that could not be met (``unmet``) is a failure.

    Where others run beside it (``is_shared``), what pytest says comes in one piece at the end.
    """
    started = time.monotonic()
    outcome = Outcome(group.name)
    missing = [what for what, _ in group.needs if what in unmet]
    if missing:
        outcome.failed, outcome.note = 1, f"could not prepare {missing[0]}"
    else:
        _run_pytest(group, outcome, is_shared=is_shared)
    outcome.seconds = time.monotonic() - started
    return outcome


def print_summary(outcomes: Iterable[Outcome]) -> int:
    """Print a row per group and the closing line; return the exit status: a check that was skipped is not a pass."""
    rows = list(outcomes)
    skips = [f"{row.name}: {skip}" for row in rows for skip in row.skips]
    print(f"\n{'group':<12}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}")
    for row in rows:
        print(
            f"{row.name:<12}{row.passed:>8}{row.failed:>8}{len(row.skips):>9}{row.seconds:>9.0f}  {row.note}".rstrip()
        )
    if skips:
        print("\nskipped, which fails the run:\n" + "\n".join(skips))
    passed, failed = sum(row.passed for row in rows), sum(row.failed for row in rows)
    print(f"\n{passed} passed, {failed} failed" + (f", {len(skips)} skipped" if skips else ""), flush=True)
    return 1 if failed or skips or not passed else 0


def _met(need: Need) -> bool:
    what, arguments = need
    PROGRESS.say(f"preparing {what}")
    return subprocess.run([VENV / "bin" / "python", *arguments], cwd=ROOT, check=False).returncode == 0


def _run_pytest(group: Group, outcome: Outcome, *, is_shared: bool) -> None:
    REPORTS.mkdir(parents=True, exist_ok=True)
    report = REPORTS / f"{group.name}.xml"
    report.unlink(missing_ok=True)
    paths = [path for path in group.paths if (ROOT / path).exists()]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, group.python_path))}
    command = [str(group.python), "-m", "pytest", "-q", f"--junitxml={report}", *paths]
    title = f"running {group.name}: {' '.join(group.paths)}"
    if is_shared:
        log = report.with_suffix(".log")
        with PROGRESS.step(title), log.open("w") as file:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, check=False, stdout=file, stderr=subprocess.STDOUT
            )
        print(f"{group.name}:\n{log.read_text()}", flush=True)
    else:
        PROGRESS.say(title)
        done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    _read_report(report, outcome)
    if done.returncode and not outcome.failed:
        outcome.failed, outcome.note = 1, f"pytest ended with exit status {done.returncode}"
    if missing := sorted(set(group.paths) - set(paths)):
        outcome.failed += 1
        outcome.note = f"no such folder: {', '.join(missing)}"


def _read_report(report: Path, outcome: Outcome) -> None:
    if not report.exists():
        return
    root = ElementTree.parse(report).getroot()
    for suite in root.iter("testsuite"):
        count = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
        outcome.failed += count["failures"] + count["errors"]
        outcome.passed += count["tests"] - count["failures"] - count["errors"] - count["skipped"]
    for case in root.iter("testcase"):
        for skip in case.iter("skipped"):
            outcome.skips.append(f"{case.get('classname')}.{case.get('name')}: {skip.get('message')}")
