"""Make the repository's Python environment from nothing, with the standard library alone.

``make`` runs this with the system's python3 before everything else: it puts uv into the cache, makes
``.venv`` and fills it from ``requirements/dev.lock`` (hashes checked). A stamp with the lock's digest
makes a second run a matter of milliseconds.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import sysconfig
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
UV_VERSION = "0.13.9"
PYTHON = "3.11"


def cache_root() -> Path:
    """Return the folder for everything that is costly to make: ``LMCB_CACHE`` or one under the home."""
    return Path(os.environ.get("LMCB_CACHE") or Path.home() / ".cache" / "lmcache-couchbase")


def uv() -> Path:
    """Return the uv of the cache, installed there first if it is missing."""
    home = cache_root() / f"uv-{UV_VERSION}"
    binary = home / "bin" / "uv"
    if not binary.exists():
        say(f"installing uv {UV_VERSION} into the cache")
        venv.create(home, with_pip=True, clear=True)
        subprocess.run([home / "bin" / "pip", "install", "-q", f"uv=={UV_VERSION}"], check=True)
    return binary


def make_environment() -> None:
    """Create or update ``.venv`` so that it holds exactly what the lock file says, and this project."""
    lock = ROOT / "requirements" / "dev.lock"
    wanted = hashlib.sha256(lock.read_bytes() + (ROOT / "pyproject.toml").read_bytes() + str(VENV).encode())
    stamp = VENV / ".lock-digest"
    if stamp.exists() and stamp.read_text() == wanted.hexdigest():
        return
    say("making .venv from requirements/dev.lock")
    started = time.monotonic()
    binary = uv()
    if not (VENV / "bin" / "python").exists():
        subprocess.run([binary, "venv", "-q", "--python", PYTHON, VENV], check=True)
    interpreter: list[str | Path] = ["--python", VENV / "bin" / "python"]
    subprocess.run([binary, "pip", "sync", "-q", *interpreter, "--require-hashes", lock], check=True)
    subprocess.run([binary, "pip", "install", "-q", *interpreter, "--no-deps", "-e", ROOT], check=True)
    stamp.write_text(wanted.hexdigest())
    say(f".venv is ready after {time.monotonic() - started:.0f} s")


def say(text: str) -> None:
    """Print one line of progress at once."""
    print(f"env      | {text}", flush=True)


if __name__ == "__main__":
    if sys.version_info < (3, 10) or not sysconfig.get_path("scripts"):
        sys.exit("python3 is too old: 3.10 or later is needed")
    make_environment()
