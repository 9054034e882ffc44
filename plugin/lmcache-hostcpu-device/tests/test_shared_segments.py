"""Shared memory for caches: it has its room from the start, and goes with its owner whatever ends it."""

import errno
import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from lmcache.v1.platform.base.ipc_wrapper import DeviceIPCWrapper
from python_processes import SHM

from lmcache_hostcpu import kv_segments
from lmcache_hostcpu.ipc_wrapper import HostCpuIPCWrapper

OWNER = """
import sys
from lmcache_hostcpu.kv_segments import SegmentOwner
owner = SegmentOwner()
print(owner.token, owner.create(1 << 16)[0], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def owner():
    """Another process that owns a segment."""
    process = subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    token, name = process.stdout.readline().split()
    yield process, token, SHM / name.lstrip("/")
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        stream.close()
    kv_segments.reclaim_abandoned()


def files(token: str) -> list[Path]:
    return list(SHM.glob(f"{kv_segments.PREFIX}{token}*"))


def test_the_segments_of_the_living_stay(owner) -> None:
    _, token, segment = owner
    assert token not in kv_segments.reclaim_abandoned()
    assert segment.stat().st_size == 1 << 16


def test_the_segments_of_the_killed_are_reclaimed(owner) -> None:
    process, token, _ = owner
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert files(token)
    assert token in kv_segments.reclaim_abandoned()
    assert not files(token)


def test_who_ends_in_order_leaves_nothing(owner) -> None:
    process, token, _ = owner
    process.stdin.close()
    process.wait()
    assert not files(token)


def test_a_watch_sees_the_end_of_an_owner(owner) -> None:
    process, token, segment = owner
    watch = kv_segments.OwnerWatch()
    watch.follow(f"/{segment.name}")
    watch.follow(f"/{segment.name}")
    (thread,) = [thread for thread in threading.enumerate() if thread.name.endswith(token)]
    process.send_signal(signal.SIGKILL)
    process.wait()
    thread.join(10)
    assert not files(token)


def test_names_that_are_not_ours_are_nobodys() -> None:
    watch = kv_segments.OwnerWatch()
    before = threading.active_count()
    watch.follow("/lmcache_kv_1_0")
    assert threading.active_count() == before


def test_room_that_is_not_there_is_refused_before_it_is_used() -> None:
    owner = kv_segments.SegmentOwner()
    too_much = os.statvfs(SHM).f_blocks * os.statvfs(SHM).f_frsize * 2
    with pytest.raises(OSError, match=r"bytes are free: make it larger .* or set .* engine_driven") as refusal:
        owner.create(too_much)
    assert refusal.value.errno == errno.ENOSPC
    assert len(files(owner.token)) == 1  # its lease
    owner.close()
    assert not files(owner.token)


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_a_folder_that_cannot_be_written_to_is_explained(code: int) -> None:
    error = kv_segments.explained(OSError(code, os.strerror(code)), "segment x", 10)
    assert error.errno == code
    assert "mount a memory emptyDir there that this user may write to" in str(error)


def wire(tensor: torch.Tensor):
    return DeviceIPCWrapper.Deserialize(DeviceIPCWrapper.Serialize(HostCpuIPCWrapper.wrap(tensor)))


def test_both_sides_see_the_same_memory() -> None:
    tensor = torch.arange(2 * 3 * 16 * 2 * 8, dtype=torch.int32).view(2, 3, 16, 2, 8)
    expected = tensor.clone()
    received = wire(tensor).to_tensor()
    assert torch.equal(received, expected)
    received[1, 2, 3] = 5
    assert torch.equal(tensor, received)
    tensor[0, 0] = 6
    assert torch.equal(tensor, received)


def test_views_of_one_memory_move_together() -> None:
    whole = torch.arange(64, dtype=torch.int64)
    first, second = whole[:32].view(4, 8), whole[32:].view(4, 8)
    wrappers = [HostCpuIPCWrapper.wrap(view) for view in (first, second)]
    assert wrappers[0].shm_name == wrappers[1].shm_name
    second[:] = 9
    assert torch.equal(wrappers[1].to_tensor(), second)
    assert torch.equal(wrappers[0].to_tensor(), torch.arange(32).view(4, 8))


def test_a_head_major_view_keeps_its_memory_order() -> None:
    memory = torch.randn(3, 2, 16, 8)
    logical = memory.permute(0, 2, 1, 3)
    expected = memory.clone()
    assert torch.equal(wire(logical).to_tensor(), expected)


def test_a_tensor_that_was_moved_is_only_described_again() -> None:
    tensor = torch.ones(4, 8)
    first, address = HostCpuIPCWrapper.wrap(tensor), tensor.data_ptr()
    tensor[0] = 3
    again = HostCpuIPCWrapper.wrap(tensor)
    assert (again.shm_name, tensor.data_ptr()) == (first.shm_name, address)
    assert torch.equal(again.to_tensor(), tensor)


def test_memory_goes_with_its_last_tensor() -> None:
    tensor = torch.ones(4, 8)
    view = tensor[2:]
    name = HostCpuIPCWrapper.wrap(tensor).shm_name
    HostCpuIPCWrapper.wrap(view)
    del tensor
    gc.collect()
    assert (SHM / name.lstrip("/")).exists()
    assert view.sum() == 16
    del view
    gc.collect()
    assert not (SHM / name.lstrip("/")).exists()


def test_an_empty_tensor_needs_no_memory() -> None:
    assert wire(torch.empty(0, 4)).to_tensor().shape == (0, 4)


def test_memory_with_padded_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match="shares dense tensors in host memory; use mp_transfer_mode engine_driven"):
        HostCpuIPCWrapper.wrap(torch.zeros(4, 3, 8)[:, :2])


def test_memory_with_gaps_is_refused() -> None:
    with pytest.raises(ValueError, match="non-contiguous and not a supported"):
        HostCpuIPCWrapper.wrap(torch.zeros(4, 32)[:, :16])


def test_memory_of_another_device_is_refused() -> None:
    with pytest.raises(ValueError, match="KV cache tensor on meta"):
        HostCpuIPCWrapper.wrap(torch.zeros(4, 8, device="meta"))
