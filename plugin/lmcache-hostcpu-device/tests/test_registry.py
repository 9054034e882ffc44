"""LMCache's rules for external backends, with this one and others installed."""

import re
import shutil
from pathlib import Path

import pytest
from python_processes import install, run_python, spec_source

import lmcache_hostcpu

CHOSEN = """
import lmcache
from lmcache.v1.platform import current_device_spec
print("CHOSEN", type(current_device_spec).__module__, lmcache.torch_device_type, type(lmcache.torch_dev).__name__)
"""


def test_the_wheel_changes_nothing_for_those_who_do_not_name_it() -> None:
    done = run_python("-c", CHOSEN, backend=None)
    assert "CHOSEN lmcache.v1.platform.devices.cpu cpu StubCPUDevice" in done.stdout, done.stderr


def test_a_backend_that_nobody_has_installed_is_named() -> None:
    done = run_python("-c", "import lmcache", backend="hostcup")
    assert done.returncode != 0
    assert "LMCACHE_DEVICE_BACKEND='hostcup' is not registered. Available backends:" in done.stderr
    assert "hostcpu" in done.stderr.rpartition("Available backends")[2]


def test_of_two_backends_of_one_name_the_first_counts(tmp_path: Path) -> None:
    install(tmp_path, "another-cpu", spec_source(backend="hostcpu"), "hostcpu = another_cpu:Spec")
    done = run_python("-c", CHOSEN, path=tmp_path)
    assert "CHOSEN another_cpu cpu" in done.stdout, done.stderr
    assert "Ignoring DeviceSpec HostCpuDeviceSpec because backend_name 'hostcpu' is already registered" in done.stderr


def test_a_broken_backend_beside_it_does_no_harm(tmp_path: Path) -> None:
    install(tmp_path, "broken", "raise OSError('no driver')", "broken = broken:Spec")
    done = run_python("-c", CHOSEN, path=tmp_path)
    assert "CHOSEN lmcache_hostcpu.spec cpu" in done.stdout, done.stderr
    assert "Failed to load LMCache device plugin 'broken' (broken:Spec): no driver" in done.stderr


def test_two_that_are_available_have_to_be_told_apart(tmp_path: Path) -> None:
    install(tmp_path, "one", spec_source(backend="one"), "one = one:Spec")
    install(tmp_path, "two", spec_source(backend="two"), "two = two:Spec")
    done = run_python("-c", CHOSEN, backend=None, path=tmp_path)
    assert "Multiple LMCache backends are available for device_type 'cpu': one, two" in done.stderr
    assert "CHOSEN lmcache_hostcpu.spec" in run_python("-c", CHOSEN, path=tmp_path).stdout


@pytest.mark.parametrize("damage", ["missing", "no library", "of another machine"])
def test_without_its_library_it_warns_once_and_uses_the_baseline(damage: str, tmp_path: Path) -> None:
    copy = tmp_path / "lmcache_hostcpu"
    shutil.copytree(Path(lmcache_hostcpu.__file__).parent, copy)
    library = copy / "native" / "libhostcpu.so"
    if damage == "missing":
        library.unlink()
    elif damage == "no library":
        library.write_text("version https://git-lfs.github.com/spec/v1")
    else:
        content = bytearray(library.read_bytes())
        content[18:20] = (243).to_bytes(2, "little")  # e_machine: RISC-V
        library.write_bytes(content)
    work = """
import lmcache, torch
from lmcache.v1.platform import resolve_device_ops
ops = [resolve_device_ops("cpu") for _ in range(3)][0]
from lmcache_hostcpu.check import paged
from lmcache_hostcpu.check.operations import Move, bound, transfer, _D2H
print("BOUND", sorted(bound(ops)))
cache = paged.cache(paged.LAYOUTS[0], torch.bfloat16, layers=2, blocks=4, heads=2, head_size=8, seed=1)
chunk = cache.chunk(32)
transfer(ops, cache, [chunk], Move([3, 1], _D2H))
print("SAME", paged.same(chunk[0, 1, :16].view(16, 2, 8), cache.layers[1][0, 3]))
"""
    done = run_python("-c", work, path=tmp_path)
    assert "BOUND ['alloc_shm_pinned_ptr']\nSAME True" in done.stdout, done.stderr
    warnings = re.findall(r"WARNING:.*?Backend hostcpu: no native operations", done.stderr)
    assert len(warnings) == 1, done.stderr
