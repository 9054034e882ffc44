"""Static checks: each is one command of one tool, counted like a test."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass

from e2e.bootstrap import ROOT, VENV, uv
from e2e.engine import environment
from e2e.testing.runner import PROGRESS, Outcome

BIN = VENV / "bin"
LAYER_PATHS = "operator:plugin/couchbase-lm-cache/src:plugin/lmcache-hostcpu-device/src"
WHEELHOUSE = "operator/couchbase_lm_operator/wheelhouse"


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
    Check("types of the device backend", (str(BIN / "mypy"), "plugin/lmcache-hostcpu-device/src/lmcache_hostcpu")),
    Check("types of the end-to-end tools", (str(BIN / "mypy"), "e2e")),
    Check("types of the benchmarks", (str(BIN / "mypy"), "benchmarks")),
    Check("layers", ("env", f"PYTHONPATH={LAYER_PATHS}", str(BIN / "lint-imports"))),
    Check("generated files", (str(BIN / "python"), "-m", "e2e.testing.generated", "--check")),
)


@dataclass(frozen=True)
class Lock:
    """A lock file, what it is resolved from, and the oldest Python that it serves."""

    path: str
    source: tuple[str, ...]
    python: str = "3.11"


LOCKS = (
    Lock("requirements/operator.lock", ("pyproject.toml",)),
    Lock("requirements/dev.lock", ("pyproject.toml", "--extra", "dev")),
    Lock("requirements/emulator.lock", ("requirements/emulator.in",)),
    Lock("requirements/images.lock", ("requirements/images.in",)),
    Lock("requirements/device-build.lock", ("requirements/device-build.in",), python="3.10"),
    Lock(f"{WHEELHOUSE}/wheels.lock", (f"{WHEELHOUSE}/wheels.in", "--no-deps"), python="3.10"),
)


def run_checks() -> Outcome:
    """Run every check, show the output of those that fail, and count them."""
    started = time.monotonic()
    outcome = Outcome("check")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "operator"), str(ROOT)))}
    for check in CHECKS:
        PROGRESS.say(f"checking {check.name}")
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
    """Resolve every lock again: each package with its hashes, no addresses."""
    for lock in LOCKS:
        PROGRESS.say(f"resolving {lock.path}")
        subprocess.run(
            [
                *(uv(), "pip", "compile", "--universal", "--python-version", lock.python, "--generate-hashes"),
                *("--no-emit-index-url", "--no-annotate", "--no-header", "-q", *lock.source, "-o", lock.path),
            ],
            cwd=ROOT,
            check=True,
        )
    environment.resolve_locks()
