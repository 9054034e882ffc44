"""The interpreters of this machine, and running them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OPERATOR = ROOT / "operator"


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command with the operator's sources importable."""
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        [str(part) for part in command],
        env=variables | {"PYTHONDONTWRITEBYTECODE": "1"} | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def interpreters() -> dict[str, Path]:
    """Find one interpreter per supported version: on PATH, or under pyenv."""
    found: dict[str, Path] = {}
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in (10, 11, 12, 13):
        candidates = [*sorted(pyenv.glob(f"3.{minor}.*/bin/python3")), shutil.which(f"python3.{minor}")]
        for candidate in candidates:
            if candidate and run(candidate, "-c", "import sys").returncode == 0:
                found[f"3.{minor}"] = Path(candidate)
                break
    return found
