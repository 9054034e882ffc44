"""One row per check, and how rows travel from the processes in which checks run."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from enum import Enum

_MARK = "check-row "


class Outcome(str, Enum):
    """What became of a check."""

    PASSED = "✔"
    FAILED = "✘"
    NOT_APPLICABLE = "-"


@dataclass(frozen=True)
class Row:
    """A check, its outcome and the reason in words."""

    group: str
    name: str
    outcome: Outcome
    reason: str


class Failed(Exception):  # noqa: N818  # read as `raise Failed("what is wrong and what to do")`
    """The check found something wrong; the text says what, and what to do."""


class NotApplicable(Exception):  # noqa: N818
    """The check does not concern this backend; the text says why."""


def perform(group: str, name: str, check: Callable[[], str]) -> Row:
    """Run a check; it returns what it found right, or raises.

    Whatever a backend raises is a finding about that backend and becomes a row.
    """
    try:
        return Row(group, name, Outcome.PASSED, check())
    except NotApplicable as reason:
        return Row(group, name, Outcome.NOT_APPLICABLE, str(reason))
    except Failed as reason:
        return Row(group, name, Outcome.FAILED, str(reason))
    except Exception as error:  # noqa: BLE001  # see above
        return Row(group, name, Outcome.FAILED, f"raised {type(error).__name__}: {error}")


def tell(group: str, name: str, check: Callable[[], str]) -> None:
    """Run a check and hand its row to the process that prints the table."""
    row = perform(group, name, check)
    sys.stdout.write(_MARK + json.dumps(asdict(row)) + "\n")
    sys.stdout.flush()


def received(output: Iterable[str]) -> list[Row]:
    """Return the rows in the output of a process; everything else there is a backend's own chatter."""
    rows = (json.loads(line.removeprefix(_MARK)) for line in output if line.startswith(_MARK))
    return [Row(row["group"], row["name"], Outcome(row["outcome"]), row["reason"]) for row in rows]


def table(rows: Iterable[Row]) -> str:
    """Return the rows as text, a group after the other."""
    lines: list[str] = []
    group = None
    for row in rows:
        if row.group != group:
            lines += ([""] if lines else []) + [row.group]
            group = row.group
        first, *more = row.reason.splitlines() or [""]
        lines.append(f"  {row.outcome.value} {row.name:<34} {first}")
        lines += [f"{'':<39}{line}" for line in more]
    return "\n".join(lines)


def counts(rows: Iterable[Row]) -> dict[Outcome, int]:
    """Return how many checks had each outcome."""
    outcomes = [row.outcome for row in rows]
    return {outcome: outcomes.count(outcome) for outcome in Outcome}
