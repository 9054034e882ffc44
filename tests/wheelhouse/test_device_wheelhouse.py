"""The device backend's wheel reaches an interpreter without pip, with the entry point that LMCache looks for."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path

import pytest

from tests.wheelhouse.processes import OPERATOR, interpreters, run
from tests.wheelhouse.test_wheelhouse import bare, install

VERSIONS = interpreters()
USED = """
import importlib.metadata
from lmcache_hostcpu import library
(found,) = importlib.metadata.entry_points(group="lmcache.device_plugins")
print(found.name, found.value, library.load() is not None)
"""


@pytest.fixture
def volume(device_wheelhouse: Path, tmp_path: Path) -> Path:
    """The volume after the first init container."""
    folder = tmp_path / "device"
    program = ("-m", "couchbase_lm_operator.wheelhouse", "copy", folder, "--source", device_wheelhouse)
    copied = run(sys.executable, *program, PYTHONPATH=str(OPERATOR))
    assert copied.returncode == 0, copied.stderr
    return folder


def test_there_is_one_wheel_for_each_architecture(device_wheelhouse: Path) -> None:
    names = sorted(path.name for path in device_wheelhouse.glob("*.whl"))
    assert [name.rpartition("manylinux_2_17_")[2] for name in names] == ["aarch64.whl", "x86_64.whl"]
    assert all("-py3-none-" in name for name in names)
    assert sorted(json.loads((device_wheelhouse / "manifest.json").read_text())["sha256"]) == names


def test_only_the_wheel_for_this_machine_is_copied(volume: Path) -> None:
    (wheel,) = (volume / "wheelhouse").glob("*.whl")
    assert wheel.name.endswith(f"_{platform.machine()}.whl")


@pytest.mark.parametrize("version", sorted(VERSIONS))
def test_an_interpreter_without_pip_gets_the_backend(version: str, volume: Path, tmp_path: Path) -> None:
    python = bare(VERSIONS[version], tmp_path / "engine")
    status, said, errors = install(python, volume)
    assert status == 0, errors
    assert "installed lmcache_hostcpu_device-" in said
    used = run(python, "-c", USED, PYTHONPATH=str(volume / "site"))
    assert used.stdout == "hostcpu lmcache_hostcpu.spec:HostCpuDeviceSpec True\n", used.stderr


def test_a_changed_wheel_is_refused(volume: Path, tmp_path: Path) -> None:
    (wheel,) = (volume / "wheelhouse").glob("*.whl")
    wheel.write_bytes(wheel.read_bytes() + b"x")
    status, _, errors = install(bare(Path(sys.executable), tmp_path / "engine"), volume)
    assert status == 1
    assert f"{wheel.name} is not what the operator image was built with" in errors
