"""The device backend's wheel: what is in it, for which machines it is, and that it comes and goes without traces."""

import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from e2e.bootstrap import uv
from e2e.cluster.errors import ClusterError
from e2e.engine import device

LIBRARY = "lmcache_hostcpu/native/libhostcpu.so"
ELF_MACHINES = {"x86_64": 62, "aarch64": 183}
COPY_SOMETHING = """
import ctypes
from lmcache_hostcpu import library
source, target = (ctypes.create_string_buffer(bytes(range(256)) * 4096), ctypes.create_string_buffer(1 << 20))
assert library.load().copy(ctypes.addressof(target), ctypes.addressof(source), 1 << 20) == library.OK
assert target.raw[: 1 << 20] == source.raw[: 1 << 20]
"""


def _built(folder: Path) -> Path:
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    device.build(folder)
    return _built(folder)


@pytest.mark.parametrize("architecture", sorted(ELF_MACHINES))
def test_the_wheel_is_for_one_architecture_and_every_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, architecture: str
) -> None:
    monkeypatch.setenv("HOSTCPU_BUILD_ARCH", architecture)
    device.build(tmp_path)
    built = _built(tmp_path)
    assert built.name.endswith(f"-py3-none-manylinux_2_17_{architecture}.whl")
    with zipfile.ZipFile(built) as archive:
        library = archive.read(LIBRARY)
    assert int.from_bytes(library[18:20], "little") == ELF_MACHINES[architecture]
    assert library.count(b"Py_") == 0
    needed = {tuple(map(int, version.split(b"."))) for version in re.findall(rb"GLIBC_([0-9.]+)", library)}
    assert needed
    assert max(needed) <= (2, 17)


def test_the_wheel_holds_the_entry_point_and_no_sources_in_c(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (entry_points,) = (archive.read(name).decode() for name in names if name.endswith("entry_points.txt"))
    assert "[lmcache.device_plugins]\nhostcpu = lmcache_hostcpu.spec:HostCpuDeviceSpec" in entry_points
    assert not [name for name in names if name.endswith((".c", ".h"))]


def test_a_wheel_from_the_source_archive_is_the_same(tmp_path: Path, wheel: Path) -> None:
    device.build(tmp_path, has_sdist=True)
    with zipfile.ZipFile(_built(tmp_path)) as ours, zipfile.ZipFile(wheel) as theirs:
        assert {one.filename: one.CRC for one in ours.infolist()} == {
            one.filename: one.CRC for one in theirs.infolist()
        }


def test_the_wheel_works_in_a_clean_environment_and_leaves_nothing(tmp_path: Path, wheel: Path) -> None:
    environment = tmp_path / "environment"
    python = environment / "bin" / "python"
    subprocess.run([uv(), "venv", "-q", environment], check=True)
    before = sorted((environment / "lib").rglob("*"))
    subprocess.run([uv(), "pip", "install", "-q", "--no-deps", "--python", python, wheel], check=True)
    subprocess.run([python, "-c", COPY_SOMETHING], check=True)
    subprocess.run([uv(), "pip", "uninstall", "-q", "--python", python, "lmcache-hostcpu-device"], check=True)
    assert sorted((environment / "lib").rglob("*")) == before


def test_another_architecture_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOSTCPU_BUILD_ARCH", "riscv64")
    with pytest.raises(ClusterError):
        device.build(tmp_path)
    assert "set HOSTCPU_BUILD_ARCH to one of them" in capfd.readouterr().err
