"""The wheel as people install it: into an environment of their own, and out of it again."""

import os
import subprocess
import sysconfig
from pathlib import Path

import lmcache
import pytest

from e2e.bootstrap import uv
from e2e.engine.device import WHEELS

pytestmark = pytest.mark.timeout(200)


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment that has LMCache, by reference, and nothing of this package."""
    folder = tmp_path / "venv"
    subprocess.run(
        [str(uv()), "venv", "-q", "--python", sysconfig.get_config_var("BINDIR") + "/python3", str(folder)], check=True
    )
    site = Path(lmcache.__file__).parents[1]
    (packages(folder) / "engine.pth").write_text(f"{site}\n")
    return folder


def packages(environment: Path) -> Path:
    (folder,) = (environment / "lib").glob("python3*/site-packages")
    return folder


def pip(environment: Path, *arguments: str) -> None:
    subprocess.run([str(uv()), "pip", arguments[0], "-q", "--python", str(environment), *arguments[1:]], check=True)


def run(environment: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(environment / "bin" / "python"), *arguments], env=variables, capture_output=True, text=True, check=False
    )


def files(environment: Path) -> set[Path]:
    return {path for path in packages(environment).rglob("*") if "__pycache__" not in path.parts}


def test_installed_checked_and_uninstalled_without_traces(environment: Path) -> None:
    (wheel,) = WHEELS.glob("*.whl")
    assert wheel.name.split("-")[2:4] == ["py3", "none"]
    before = files(environment)
    pip(environment, "install", "--no-deps", str(wheel))
    checked = run(environment, "-m", "lmcache_hostcpu.check", "--without-server")
    assert checked.returncode == 0, checked.stdout
    assert "own operations: alloc_shm_pinned_ptr, lmcache_memcpy_async, multi_layer_block_kv_transfer" in checked.stdout
    assert str(environment) in checked.stdout

    pip(environment, "uninstall", "lmcache-hostcpu-device")
    assert files(environment) == before
    gone = run(environment, "-c", "import lmcache")
    assert "LMCACHE_DEVICE_BACKEND='hostcpu' is not registered" in gone.stderr
