"""Static checks: each is one command of one tool, counted like a test."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass

from e2e.bootstrap import ROOT, VENV, uv
from e2e.testing.runner import Outcome, say

BIN = VENV / "bin"


@dataclass(frozen=True)
class Check:
    """A named command line, run in the repository's root."""

    name: str
    command: tuple[str, ...]


CHECKS = (
    Check("lint", (str(BIN / "ruff"), "check", ".")),
    Check("format", (str(BIN / "ruff"), "format", "--check", ".")),
    Check("types of the operator", (str(BIN / "mypy"), "operator/couchbase_lm_operator")),
    Check("types of the plugin", (str(BIN / "mypy"), "plugin/couchbase-lm-cache/src/couchbase_lm_cache")),
    Check("types of the end-to-end tools", (str(BIN / "mypy"), "e2e")),
    Check("layers", (str(BIN / "lint-imports"),)),
    Check("generated files", (str(BIN / "python"), "-m", "e2e.testing.generated", "--check")),
)

LOCKS = {
    "operator": ("pyproject.toml",),
    "dev": ("pyproject.toml", "--extra", "dev"),
}


def run_checks() -> Outcome:
    """Run every check, show the output of those that fail, and count them."""
    started = time.monotonic()
    outcome = Outcome("check")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "operator"), str(ROOT)))}
    for check in CHECKS:
        say(f"checking {check.name}")
        done = subprocess.run(
            check.command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            outcome.failed += 1
            print(f"{check.name}: {' '.join(check.command)}\n{done.stdout}", flush=True)
        else:
            outcome.passed += 1
    outcome.seconds = time.monotonic() - started
    return outcome


def resolve_locks() -> None:
    """Resolve the locks of the root environments again: every package with its hashes, no addresses."""
    for name, source in LOCKS.items():
        say(f"resolving requirements/{name}.lock")
        subprocess.run(
            [
                *(uv(), "pip", "compile", "--universal", "--python-version", "3.11", "--generate-hashes"),
                *("--no-emit-index-url", "--no-annotate", "--no-header", "-q", *source),
                *("-o", f"requirements/{name}.lock"),
            ],
            cwd=ROOT,
            check=True,
        )
