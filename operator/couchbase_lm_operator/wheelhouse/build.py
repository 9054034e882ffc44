"""Fills the wheelhouse of the operator image: our own wheel, and those of what it needs, for all interpreters.

Runs where the image is built, with a Python that has pip and our build backend. Wheels come from the package
index through pip, held to the hashes in ``wheels.lock``.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from couchbase_lm_operator.wheelhouse.install import MANIFEST_NAME

PYTHON_VERSIONS = ("3.10", "3.11", "3.12", "3.13")
MACHINES = ("x86_64", "aarch64")
LOCK = Path(__file__).with_name("wheels.lock")

# pip takes no "this or older" for foreign platforms, so every family that wheels are tagged with is named.
_PLATFORM_FAMILIES = ("manylinux_2_28", "manylinux_2_26", "manylinux_2_17", "manylinux2014")


class BuildError(Exception):
    """The wheelhouse could not be built; the message holds what pip said."""


def build(plugin: Path, destination: Path) -> str:
    """Write all wheels and their manifest to ``destination``; returns what was done, as a sentence.

    Args:
        plugin: source folder of couchbase-lm-cache.
        destination: folder to fill; made when missing.

    Raises:
        BuildError: pip failed.
    """
    destination.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        _progress(f"building the wheel of {plugin}")
        # Our build backend is pinned by the environment we run in; isolation would fetch another one.
        _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(plugin))
        for version in PYTHON_VERSIONS:
            for machine in MACHINES:
                _progress(f"fetching wheels for Python {version} on {machine}")
                _download(version, machine, folder)
        wheels = sorted(folder.glob("*.whl"))
        for old in [*destination.glob("*.whl"), destination / MANIFEST_NAME]:
            old.unlink(missing_ok=True)
        for wheel in wheels:
            (destination / wheel.name).write_bytes(wheel.read_bytes())
    checksums = {wheel.name: hashlib.sha256((destination / wheel.name).read_bytes()).hexdigest() for wheel in wheels}
    (destination / MANIFEST_NAME).write_text(json.dumps({"sha256": checksums}, indent=1) + "\n", encoding="utf-8")
    return f"{len(wheels)} wheels for Python {', '.join(PYTHON_VERSIONS)} in {destination}"


def _download(version: str, machine: str, folder: Path) -> None:
    platforms = [option for family in _PLATFORM_FAMILIES for option in ("--platform", f"{family}_{machine}")]
    _pip(
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--require-hashes",
        "--python-version",
        version,
        "--implementation",
        "cp",
        *platforms,
        "--dest",
        str(folder),
        "--requirement",
        str(LOCK),
    )


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise BuildError(f"pip {arguments[0]} failed:\n{result.stderr.strip()}")


def _progress(text: str) -> None:
    sys.stderr.write(f"wheelhouse: {text}\n")
