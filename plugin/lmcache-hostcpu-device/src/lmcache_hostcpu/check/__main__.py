"""Prints a table of what an installed backend does right and wrong; see ``--help``."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from dataclasses import replace

from lmcache_hostcpu.check import report
from lmcache_hostcpu.check.report import Outcome, Row

_SECONDS = 300
_DRIVEN = "LMCache-driven mode"


def main(arguments: list[str] | None = None) -> int:
    """Run the checks; return 0 if none failed, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m lmcache_hostcpu.check",
        description="Check an installed LMCache device backend against LMCache's rules. "
        "✔ it does what LMCache expects, ✘ it does not and why, - the check does not concern it.",
    )
    parser.add_argument(
        "backend",
        nargs="?",
        default=os.environ.get("LMCACHE_DEVICE_BACKEND", "hostcpu"),
        help="its backend_name (default: LMCACHE_DEVICE_BACKEND, else hostcpu)",
    )
    parser.add_argument("--without-server", action="store_true", help="leave out transfers through `lmcache server`")
    options = parser.parse_args(arguments)
    backend = options.backend.strip().lower()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # so that servers and workers end, too

    rows = _process("discovery", "Discovery", backend)
    if not any(row.outcome is Outcome.FAILED for row in rows):
        rows += _process("import_cost", "Discovery", backend)
        rows += _process("selected", "Selection", backend)
        failed = {row.name for row in rows if row.outcome is Outcome.FAILED}
        if not options.without_server and "LMCACHE_DEVICE_BACKEND" not in failed:
            from lmcache_hostcpu.check import transfers

            has_handles = any(row.group == _DRIVEN and row.name == "IPC wrapper" for row in rows)
            rows += transfers.check(backend, has_handles=has_handles)
    print(f"LMCache device backend {backend!r}\n\n{report.table(rows)}\n")
    counts = report.counts(rows)
    print(", ".join(f"{count} {outcome.value}" for outcome, count in counts.items()))
    return 1 if counts[Outcome.FAILED] else 0


def _process(module: str, group: str, backend: str) -> list[Row]:
    """Run a module of checks in a process of its own; a backend may end it, or never come back."""
    command = [sys.executable, "-m", f"lmcache_hostcpu.check.{module}", backend]
    variables = os.environ | {"LMCACHE_TRACK_USAGE": "false", "PYTHONIOENCODING": "utf-8"}
    try:
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        output = error.stdout.decode() if isinstance(error.stdout, bytes) else (error.stdout or "")
        late = Row(group, "comes to an end", Outcome.FAILED, f"not after {_SECONDS} s")
        return [*report.received(output.splitlines()), late]
    rows = [_with_log(row, done.stderr) for row in report.received(done.stdout.splitlines())]
    if done.returncode != 0:
        last = "\n".join(done.stderr.strip().splitlines()[-5:])
        rows.append(Row(group, "comes to an end", Outcome.FAILED, f"status {done.returncode}:\n{last}"))
    return rows


def _with_log(row: Row, log: str) -> Row:
    """Add what LMCache has said about a backend that it did not register."""
    said = [line for line in log.splitlines() if "LMCache device plugin" in line]
    if row.name != "registered" or row.outcome is not Outcome.FAILED or not said:
        return row
    return replace(row, reason=f"{row.reason}\n{said[0]}")


if __name__ == "__main__":
    sys.exit(main())
