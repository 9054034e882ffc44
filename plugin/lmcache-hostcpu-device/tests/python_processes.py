"""Python in processes of its own: with other variables, other installed backends, or another /dev/shm."""

import os
import subprocess
import sys
from pathlib import Path

SHM = Path("/dev/shm")


def run_python(*arguments: str, backend: str | None = "hostcpu", path: Path | None = None, **more: str):
    """Run Python; ``path`` comes before everything that is installed."""
    variables = os.environ | more
    variables.pop("LMCACHE_DEVICE_BACKEND", None)
    if backend is not None:
        variables["LMCACHE_DEVICE_BACKEND"] = backend
    if path is not None:
        variables["PYTHONPATH"] = os.pathsep.join([str(path), variables.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *arguments], env=variables, capture_output=True, text=True, timeout=250, check=False
    )


def install(folder: Path, name: str, source: str, entry: str, distribution: str | None = None) -> Path:
    """Install a distribution with one package and one entry point of a backend into a folder."""
    package = folder / name.replace("-", "_")
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text(source)
    info = folder / f"{(distribution or name).replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution or name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[lmcache.device_plugins]\n{entry}\n")
    return folder


def spec_source(body: str = "", backend: str = "toy", base: str = "DeviceSpec") -> str:
    """The source of a module with the class ``Spec``: a CPU under another name, with changes."""
    lines = [
        "from lmcache.v1.platform.base.device_spec import DeviceSpec",
        "from lmcache.v1.platform.devices.cpu import CpuDeviceSpec",
        f"class Spec({base}):",
        "    device_type = 'cpu'",
        f"    backend_name = {backend!r}",
        "    torch_module_name = 'cpu'",
        "    def is_available(self): return True",
        *(f"    {line}" for line in body.splitlines()),
    ]
    return "\n".join(lines) + "\n"
