"""Ask vLLM in processes of its own, so that a model class that brings one down does not end the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.vllm_specs.cases import Case

ROOT = Path(__file__).parents[2]


def answers(cases: Sequence[Case], timeout_seconds: float = 600) -> dict[str, dict[str, Any]]:
    """Return the answer for every case, by its name; a case that ended a process has an ``error`` that says so.

    Raises:
        RuntimeError: a process ended before its first case, which is no case's fault.
        subprocess.TimeoutExpired: a process took longer than allowed.
    """
    found: dict[str, dict[str, Any]] = {}
    waiting = list(cases)
    while waiting:
        lines, status, output = _run(waiting, timeout_seconds)
        found.update({line.pop("case"): line for line in lines if "started" not in line})
        waiting = [case for case in waiting if case.name not in found]
        if waiting:
            if not lines:
                raise RuntimeError(f"The process that asks vLLM ended with status {status}:\n{output[-2000:]}")
            crashed = waiting.pop(0)
            found[crashed.name] = {"error": f"the process ended with status {status}", "at": output[-300:]}
    return found


def _run(cases: Sequence[Case], timeout_seconds: float) -> tuple[list[dict[str, Any]], int, str]:
    with tempfile.TemporaryDirectory() as name:
        questions, results = Path(name) / "cases.json", Path(name) / "results.jsonl"
        questions.write_text(json.dumps([asdict(case) for case in cases]))
        results.touch()
        done = subprocess.run(
            [sys.executable, "-m", "tests.vllm_specs.worker", str(questions), str(results)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout_seconds,
            check=False,
        )
        return [json.loads(line) for line in results.read_text().splitlines()], done.returncode, done.stdout
