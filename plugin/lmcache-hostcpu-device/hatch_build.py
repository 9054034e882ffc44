"""Build hook: compiles the C library into the wheel and names the platform that the wheel is for.

The wheel has no part that depends on a Python version. ``HOSTCPU_BUILD_ARCH`` (``x86_64``, ``aarch64``) builds for
another machine than this one.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ARCHITECTURES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
GLIBC = (2, 17)
LIBRARY = "libhostcpu.so"
PACKAGE = Path("lmcache_hostcpu") / "native"
_FLAGS = ("-std=c11", "-O3", "-fPIC", "-shared", "-pthread", "-s", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden")


class NativeLibraryHook(BuildHookInterface):  # type: ignore[type-arg]  # hatchling does not export its configuration's type
    """Adds ``lmcache_hostcpu/native/libhostcpu.so`` to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; an editable install finds the library beside the sources."""
        architecture = wanted_architecture()
        sources = Path(self.root) / "src" / PACKAGE
        self._folder = tempfile.TemporaryDirectory(prefix="hostcpu-")
        output = sources / LIBRARY if version == "editable" else Path(self._folder.name) / LIBRARY
        compile_library(sources, output, architecture)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_{GLIBC[0]}_{GLIBC[1]}_{architecture}"
        if version != "editable":
            build_data["force_include"][str(output)] = str(PACKAGE / LIBRARY)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Take away what was compiled: it is in the wheel now."""
        del version, build_data, artifact_path
        self._folder.cleanup()


def wanted_architecture() -> str:
    """Return the architecture to build for.

    Raises:
        RuntimeError: neither this machine nor ``HOSTCPU_BUILD_ARCH`` is one that the library is written for.
    """
    wanted = os.environ.get("HOSTCPU_BUILD_ARCH") or platform.machine()
    architecture = ARCHITECTURES.get(wanted.lower())
    if architecture is None or sys.platform != "linux":
        raise RuntimeError(
            f"lmcache-hostcpu-device is for Linux on {' and '.join(dict.fromkeys(ARCHITECTURES.values()))}, "
            f"not for {sys.platform} on {wanted}: build on Linux, or set HOSTCPU_BUILD_ARCH to one of them"
        )
    return architecture


def compile_library(sources: Path, output: Path, architecture: str) -> None:
    """Compile all ``*.c`` of a folder into one shared library.

    Raises:
        RuntimeError: the compiler refused; the message holds what it said.
    """
    target = f"{architecture}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
    files = sorted(str(path) for path in sources.glob("*.c"))
    with tempfile.TemporaryDirectory(prefix="hostcpu-zig-") as cache:
        environment = {"ZIG_GLOBAL_CACHE_DIR": cache, **os.environ, "ZIG_LOCAL_CACHE_DIR": cache}
        command = [sys.executable, "-m", "ziglang", "cc", "-target", target, *_FLAGS, "-o", str(output), *files]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"compiling {LIBRARY} for {target} failed:\n{done.stderr}")
