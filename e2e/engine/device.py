"""The wheel of the device backend: built by a PEP 517 front end, and installed into a folder of its own.

The folder goes on the path of whoever wants the backend, with its entry point; the engine's environment stays what
its lock file says.
"""

import hashlib
import os
import shutil
import sys
from pathlib import Path

from e2e.bootstrap import ROOT, cache_root
from e2e.engine import environment
from e2e.engine.environment import PROGRESS, REQUIREMENTS

SOURCE = ROOT / "plugin" / "lmcache-hostcpu-device"
LOCK = REQUIREMENTS / "device-build.lock"
_FOLDER = ROOT / ".local" / "device"
SITE = _FOLDER / "site"
WHEELS = _FOLDER / "wheels"


def ensure() -> None:
    """Build and install the wheel, unless that was done from the same sources.

    Raises:
        ClusterError: building or installing failed; what the tools said was shown.
    """
    stamp = _FOLDER / ".digest"
    wanted = _digest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    environment.ensure()
    with PROGRESS.step(f"building the wheel of {SOURCE.name}"):
        stamp.unlink(missing_ok=True)
        for folder in (SITE, WHEELS):
            shutil.rmtree(folder, ignore_errors=True)
        build(WHEELS)
        (wheel,) = WHEELS.glob("*.whl")
        environment.run_uv(
            *("pip", "install", "-q", "--no-deps", "--python", str(environment.python())),
            *("--target", str(SITE), str(wheel)),
        )
        stamp.write_text(wanted)


def build(destination: Path, *, has_sdist: bool = False) -> None:
    """Build the wheel into a folder: for this machine or for ``HOSTCPU_BUILD_ARCH``, with or from a source archive.

    Raises:
        ClusterError: building failed; what the tools said was shown.
    """
    os.environ.setdefault("ZIG_GLOBAL_CACHE_DIR", str(cache_root().resolve() / "zig"))
    environment.run_uv(
        *("build", *(() if has_sdist else ("--wheel",)), "--no-create-gitignore", "--python", sys.executable),
        *("--build-constraints", str(LOCK), "--require-hashes", "--out-dir", str(destination), str(SOURCE)),
    )


def _digest() -> str:
    digest = hashlib.sha256(LOCK.read_bytes() + str(SITE).encode())
    files = [path for path in (SOURCE / "src").rglob("*") if path.suffix in {".py", ".c", ".h"}]
    for path in sorted([*files, *SOURCE.glob("*.py"), SOURCE / "pyproject.toml", SOURCE / "README.md"]):
        digest.update(f"{path.relative_to(SOURCE)}\0".encode() + path.read_bytes())
    return digest.hexdigest()
