"""``python -m e2e.testing all|fast|check|generate|lock``."""

from __future__ import annotations

import argparse
import sys

from e2e.testing.checks import resolve_locks, run_checks
from e2e.testing.generated import write_generated
from e2e.testing.groups import GROUPS
from e2e.testing.runner import Outcome, print_summary, run_group


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
    for group in GROUPS if arguments.what != "check" else ():
        is_wanted = group.name in arguments.only if arguments.only else arguments.what == "all" or group.is_fast
        if is_wanted:
            outcomes.append(run_group(group))
    return print_summary(outcomes)


if __name__ == "__main__":
    sys.exit(main())
