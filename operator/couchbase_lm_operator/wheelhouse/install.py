"""Unpack wheels for the interpreter that runs this file, without pip.

    python3 install.py --from WHEELHOUSE --into TARGET

Self-contained on purpose: it is copied next to the wheels and run by an interpreter of which nothing is known
but that it is Python 3. Of every distribution in the wheelhouse the wheel that fits this interpreter is
checked against its SHA-256 and unpacked into TARGET, which then works as an entry of PYTHONPATH. Wheel
tags are those of PEP 425 and PEP 600. Ends with status 0, or with status 1 and one sentence on stderr.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path, PurePosixPath

MANIFEST_NAME = "manifest.json"
_MARKER_NAME = ".installed.json"
_GLIBC_OF_OLD_TAGS = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
_READ_BYTES = 1024 * 1024
_SPARE_BYTES = 16 * 1024 * 1024

# PYTHONPATH comes before the image's own packages: what LMCache and vLLM import too must be the image's.
_BELONGS_TO_THE_IMAGE = frozenset({"lmcache", "torch", "typing_extensions", "typing_extensions.py", "vllm"})


class InstallError(Exception):
    """The wheels cannot be installed; the message is one sentence for the pod's owner."""


class Manifest:
    """What a wheelhouse says of itself.

    ``content`` is the manifest as written, ``checksums`` the SHA-256 of every wheel by file name, ``imports`` the
    modules whose import proves that the wheels work.
    """

    def __init__(self, content: bytes) -> None:
        parts = json.loads(content)
        self.content = content
        self.checksums = {str(name): str(checksum) for name, checksum in parts["sha256"].items()}
        self.imports = [str(module) for module in parts["imports"]]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Unpack wheels for this interpreter.")
    parser.add_argument("--from", dest="wheelhouse", type=Path, required=True, help="folder with wheels and manifest")
    parser.add_argument("--into", dest="target", type=Path, required=True, help="folder to unpack into")
    parser.add_argument("--expect", default="lmcache", help="module the interpreter must have already")
    options = parser.parse_args(arguments)
    try:
        message = install(options.wheelhouse, options.target, options.expect)
    except InstallError as error:
        sys.stderr.write(f"The wheels of {options.wheelhouse} cannot be installed: {error}.\n")
        return 1
    sys.stdout.write(message + "\n")
    return 0


def install(wheelhouse: Path, target: Path, expected_module: str) -> str:
    """Install what ``wheelhouse`` holds into ``target`` and prove that it can be imported.

    Raises:
        InstallError: no wheel fits, a wheel is damaged, there is no room, or the import fails.
    """
    if importlib.util.find_spec(expected_module) is None:
        raise InstallError(
            f"{sys.executable} has no module {expected_module}; "
            f"set spec.engine.python to the interpreter of the image that has it"
        )
    manifest = read_manifest(wheelhouse)
    chosen = choose(list(manifest.checksums))
    marker = json.dumps({"python": sys.version, "manifest": hashlib.sha256(manifest.content).hexdigest()})
    installed = ", ".join(name.split("-cp3")[0].split("-py3")[0] for name in chosen)
    if _read_marker(target) != marker:
        for name in chosen:
            verify(wheelhouse / name, manifest.checksums[name])
        _unpack([wheelhouse / name for name in chosen], target)
    _check_imports(target, manifest.imports)
    _write_marker(target, marker)
    return f"installed {installed} for {platform.python_implementation()} {platform.python_version()} into {target}"


def read_manifest(wheelhouse: Path) -> Manifest:
    """Return the manifest of a folder of wheels.

    Raises:
        InstallError: there is none, or it is damaged.
    """
    path = wheelhouse / MANIFEST_NAME
    try:
        return Manifest(path.read_bytes())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise InstallError(f"{path} is missing or damaged; was the operator image built completely?") from None


def choose(wheels: list[str]) -> list[str]:
    """Return one fitting wheel of each distribution; several fitting ones differ only in their tags' age."""
    fitting: dict[str, str | None] = {}
    for name in sorted(wheels):
        distribution = name.split("-")[0]
        fitting.setdefault(distribution, None)
        if fits(name):
            fitting[distribution] = name
    missing = sorted(distribution for distribution, wheel in fitting.items() if wheel is None)
    if missing:
        raise InstallError(
            f"there is no wheel of {' and '.join(missing)} for {platform.python_implementation()} "
            f"{platform.python_version()} on {_describe_platform()}; "
            f"CPython {_offered(wheels)} on Linux with glibc is supported"
        )
    return [wheel for wheel in fitting.values() if wheel is not None]


def fits(wheel_name: str) -> bool:
    """Tell whether a wheel can be used by this interpreter on this machine."""
    parts = wheel_name[: -len(".whl")].split("-")
    python_tags, abi_tags, platform_tags = (part.split(".") for part in parts[-3:])
    return (
        any(map(_fits_python, python_tags))
        and any(map(_fits_abi, abi_tags))
        and any(map(_fits_platform, platform_tags))
    )


def verify(wheel: Path, sha256: str) -> None:
    """Compare a wheel with its checksum."""
    digest = hashlib.sha256()
    try:
        with wheel.open("rb") as stream:
            for block in iter(lambda: stream.read(_READ_BYTES), b""):
                digest.update(block)
    except OSError:
        raise InstallError(f"{wheel} cannot be read") from None
    if digest.hexdigest() != sha256:
        raise InstallError(f"{wheel.name} is not what the operator image was built with (its SHA-256 differs)")


def _fits_python(tag: str) -> bool:
    return tag in ("py3", f"cp{sys.version_info[0]}{sys.version_info[1]}")


def _fits_abi(tag: str) -> bool:
    # A free-threaded interpreter needs wheels of its own (abi cp313t), and nobody ships them for us.
    free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    own = platform.python_implementation() == "CPython" and not free_threaded
    return tag == "none" or (own and tag in ("abi3", f"cp{sys.version_info[0]}{sys.version_info[1]}"))


def _fits_platform(tag: str) -> bool:
    if tag == "any":
        return True
    machine = platform.machine()
    if not tag.endswith(f"_{machine}"):
        return False
    family = tag[: -len(machine) - 1]
    needed = _GLIBC_OF_OLD_TAGS.get(family)
    if needed is None and family.startswith("manylinux_"):
        major, minor = family.split("_")[1:]
        needed = (int(major), int(minor))
    return needed is not None and needed <= glibc_version()


def glibc_version() -> tuple[int, int]:
    """Return the version of the C library; (0, 0) when it is another one, such as musl."""
    try:
        name, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
        major, minor = version.split(".")[:2]
        return (int(major), int(minor)) if name == "glibc" else (0, 0)
    except (ValueError, OSError):
        return (0, 0)


def _unpack(wheels: list[Path], target: Path) -> None:
    """Replace the content of ``target`` by that of the wheels; a half-done earlier attempt leaves nothing."""
    try:
        target.mkdir(parents=True, exist_ok=True)
        for entry in target.iterdir():
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        archives = [zipfile.ZipFile(wheel) for wheel in wheels]
        needed = sum(entry.file_size for archive in archives for entry in archive.infolist()) + _SPARE_BYTES
        free = shutil.disk_usage(target).free
        if free < needed:
            raise InstallError(f"{target} needs {needed} bytes and has only {free} bytes free")
        for archive in archives:
            _check_names(archive, target)
            archive.extractall(target)
    except zipfile.BadZipFile:
        raise InstallError("a wheel is not a zip archive") from None
    except OSError as error:
        raise InstallError(f"{target} cannot be filled ({error.strerror})") from None


def _check_names(archive: zipfile.ZipFile, target: Path) -> None:
    wheel = Path(archive.filename or "").name
    top_level = set()
    for name in archive.namelist():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise InstallError(f"{wheel} holds the unsafe path {name}")
        top_level.add(path.parts[0])
    shadowing = sorted(top_level & _BELONGS_TO_THE_IMAGE)
    if shadowing:
        raise InstallError(f"{wheel} would hide the image's own {shadowing[0]}")
    for entry in sorted(top_level):
        if entry.endswith(".data"):
            raise InstallError(f"{wheel} has an installation scheme ({entry}) that only pip can handle")
        if (target / entry).exists():
            raise InstallError(f"{wheel} holds {entry}, which another wheel holds too")


def _check_imports(target: Path, modules: list[str]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(target), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        result = subprocess.run(
            [sys.executable, "-c", f"import {', '.join(modules)}"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        raise InstallError(f"{sys.executable} could not be started to try it") from None
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines() or [f"the interpreter died with status {result.returncode}"]
        raise InstallError(f"it was unpacked, but importing it fails: {lines[-1]}")


def _read_marker(target: Path) -> str | None:
    try:
        return (target / _MARKER_NAME).read_text(encoding="utf-8")
    except OSError:
        return None


def _write_marker(target: Path, marker: str) -> None:
    try:
        (target / _MARKER_NAME).write_text(marker, encoding="utf-8")
    except OSError as error:
        raise InstallError(f"{target} cannot be written ({error.strerror})") from None


def _describe_platform() -> str:
    libc = "glibc {}.{}".format(*glibc_version()) if glibc_version() > (0, 0) else "no glibc"
    return f"{platform.system()} {platform.machine()} ({libc})"


def _offered(wheels: list[str]) -> str:
    tags = {part for name in wheels for part in name[: -len(".whl")].split("-")[-3].split(".")}
    minors = sorted(int(tag[3:]) for tag in tags if tag.startswith("cp3"))
    return f"3.{minors[0]} to 3.{minors[-1]}" if minors else "3"


if __name__ == "__main__":
    sys.exit(main())
