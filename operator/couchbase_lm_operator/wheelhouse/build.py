"""Fills the wheelhouses of the operator image: our own wheels, and those of what they need.

Runs where the image is built, with a Python that has pip and the build requirements of our wheels. Other wheels come
from the package index through pip, held to the hashes in ``wheels.lock``.
"""

from __future__ import annotations

import hashlib
import json
import os
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


def build_plugin(source: Path, destination: Path) -> str:
    """Write the Couchbase adapter and what it needs, for all interpreters; returns what was done, as a sentence.

    Args:
        source: source folder of couchbase-lm-cache.
        destination: folder to fill with wheels and their manifest; made when missing.

    Raises:
        BuildError: pip failed.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        _build(source, folder, {})
        for version in PYTHON_VERSIONS:
            for machine in MACHINES:
                _progress(f"fetching wheels for Python {version} on {machine}")
                _download(version, machine, folder)
        # Imports the SDK's native module and xxhash, but not LMCache, which takes many seconds.
        return _publish(folder, destination, ["typing_extensions", "couchbase_lm_cache.transports"])


def build_device(source: Path, destination: Path) -> str:
    """Write the device backend's wheel, one for each architecture; returns what was done, as a sentence.

    Args:
        source: source folder of lmcache-hostcpu-device.
        destination: folder to fill with wheels and their manifest; made when missing.

    Raises:
        BuildError: pip or the compiler failed.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for machine in MACHINES:
            _build(source, folder, {"HOSTCPU_BUILD_ARCH": machine})
        return _publish(folder, destination, ["lmcache_hostcpu.library"])


def _build(source: Path, folder: Path, variables: dict[str, str]) -> None:
    _progress(f"building the wheel of {source} {' '.join(variables.values())}".rstrip())
    # Our build requirements are pinned by the environment we run in; isolation would fetch others.
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source), variables=variables)


def _publish(folder: Path, destination: Path, imports: list[str]) -> str:
    """Replace what ``destination`` holds; the manifest comes last."""
    destination.mkdir(parents=True, exist_ok=True)
    for old in [destination / MANIFEST_NAME, *destination.glob("*.whl")]:
        old.unlink(missing_ok=True)
    checksums = {}
    for wheel in sorted(folder.glob("*.whl")):
        content = wheel.read_bytes()
        (destination / wheel.name).write_bytes(content)
        checksums[wheel.name] = hashlib.sha256(content).hexdigest()
    manifest = {"sha256": checksums, "imports": imports}
    (destination / MANIFEST_NAME).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return f"{len(checksums)} wheels in {destination}"


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


def _pip(*arguments: str, variables: dict[str, str] | None = None) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    environment = {**os.environ, **(variables or {})}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise BuildError(f"pip {arguments[0]} failed:\n{result.stderr.strip()}")


def _progress(text: str) -> None:
    sys.stderr.write(f"wheelhouse: {text}\n")
