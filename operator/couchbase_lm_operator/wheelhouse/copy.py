"""The first init container: the wheels for this machine, and the installer, onto the shared volume."""

from __future__ import annotations

import json
import platform
import shutil
from pathlib import Path

from couchbase_lm_operator.wheelhouse import install
from couchbase_lm_operator.wheelhouse.install import MANIFEST_NAME, InstallError

WHEELHOUSE_FOLDER = "wheelhouse"
INSTALLER_NAME = "install.py"


def copy(source: Path, destination: Path) -> str:
    """Copy to ``destination/wheelhouse`` and ``destination/install.py``; returns what was done, as a sentence.

    Wheels for other machines are left behind: both init containers run on the same node. The manifest comes
    last, so that a copy that was cut short is recognised.

    Raises:
        InstallError: ``source`` is incomplete, or ``destination`` cannot be written.
    """
    all_wheels = install.read_manifest(source)
    wanted = sorted(name for name in all_wheels.checksums if is_for_this_machine(name))
    folder = destination / WHEELHOUSE_FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in wanted:
            _copy_file(source / name, folder / name)
        _copy_file(Path(install.__file__), destination / INSTALLER_NAME)
        checksums = {name: all_wheels.checksums[name] for name in wanted}
        manifest = {"sha256": checksums, "imports": all_wheels.imports}
        _write_file(folder / MANIFEST_NAME, json.dumps(manifest, indent=1).encode())
    except OSError as error:
        raise InstallError(f"{destination} cannot be filled ({error.strerror})") from None
    return f"copied {len(wanted)} wheels and the installer to {destination}"


def is_for_this_machine(wheel_name: str) -> bool:
    """Tell whether a wheel is for this processor, or for any."""
    platform_tag = wheel_name[: -len(".whl")].rpartition("-")[2]
    return platform_tag == "any" or platform_tag.endswith(f"_{platform.machine()}")


def _copy_file(source: Path, destination: Path) -> None:
    temporary = destination.with_name(destination.name + ".part")
    shutil.copyfile(source, temporary)
    # The second container may run as another user, whatever the umask of this one is.
    temporary.chmod(0o644)
    temporary.replace(destination)


def _write_file(destination: Path, content: bytes) -> None:
    temporary = destination.with_name(destination.name + ".part")
    temporary.write_bytes(content)
    temporary.chmod(0o644)
    temporary.replace(destination)
