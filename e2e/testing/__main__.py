"""``python -m e2e.testing all|fast|check|generate|lock``."""

from __future__ import annotations

import argparse
import sys

from e2e.testing.checks import resolve_locks, run_checks
from e2e.testing.generated import write_generated
from e2e.testing.groups import GROUPS, Group
from e2e.testing.runner import Outcome, print_summary, run_groups


def main() -> int:
    """Run what was asked for and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m e2e.testing", description=__doc__)
    parser.add_argument("what", choices=["all", "fast", "check", "generate", "lock"])
    parser.add_argument("--only", action="append", default=[], help="a group's name; may be repeated")
    arguments = parser.parse_args()
    if arguments.what == "lock":
        resolve_locks()
        return 0
    if arguments.what == "generate":
        write_generated()
        return 0
    outcomes: list[Outcome] = []
    if not arguments.only:
        outcomes.append(run_checks())
    if arguments.what != "check":
        outcomes += run_groups([group for group in GROUPS if _is_wanted(group, arguments)])
    return print_summary(outcomes)


def _is_wanted(group: Group, arguments: argparse.Namespace) -> bool:
    if arguments.only:
        return group.name in arguments.only
    return group.is_fast or arguments.what == "all"


if __name__ == "__main__":
    sys.exit(main())
