"""The module fits ``bind_native``, keeps tensor mode, and shares its threads with whoever calls."""

import inspect
import multiprocessing
import threading
from pathlib import Path

import pytest
import torch
from lmcache.v1.multiprocess.transfer_context.base import _detect_block_transfer_accepts_tensor
from lmcache.v1.platform import torch_ops
from lmcache.v1.platform.base.device_ops import DeviceOps
from transfer_cases import Case, Run

from lmcache_hostcpu import cores, library, native_ops

NAMES = ("lmcache_memcpy_async", "multi_layer_block_kv_transfer")
LARGE = Case(
    format="NL_X_NB_NH_BS_CS",
    layers=8,
    blocks=64,
    block_tokens=16,
    heads=4,
    head_elements=128,
    blocks_per_object=16,
    block_ids=tuple(range(63, 31, -1)),
)


def test_binding_takes_the_two_operations_and_nothing_else() -> None:
    ops = DeviceOps()
    before = set(vars(ops))
    ops.bind_native(native_ops)
    assert set(vars(ops)) - before == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_signatures_are_those_of_the_baseline(name: str) -> None:
    ours = inspect.signature(getattr(native_ops, name)).parameters.values()
    theirs = inspect.signature(getattr(torch_ops, name)).parameters.values()
    assert [(one.name, one.kind, one.default) for one in ours] == [(one.name, one.kind, one.default) for one in theirs]


def test_the_bound_operation_keeps_tensor_mode() -> None:
    ops = DeviceOps()
    ops.bind_native(native_ops)
    assert _detect_block_transfer_accepts_tensor(ops.multi_layer_block_kv_transfer)


def test_callers_at_the_same_time_do_not_disturb_each_other() -> None:
    expected = Run(LARGE)
    expected.run_baseline()
    runs = [Run(LARGE) for _ in range(6)]
    failures: list[BaseException] = []

    def repeat(run: Run) -> None:
        try:
            for _ in range(20):
                native_ops.multi_layer_block_kv_transfer(*run.arguments())
        except BaseException as error:  # noqa: BLE001  # shown by the assertion below
            failures.append(error)

    threads = [threading.Thread(target=repeat, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for run in runs:
        assert all(torch.equal(one, other) for one, other in zip(run.bytes, expected.bytes, strict=True))


def test_a_forked_process_has_threads_of_its_own() -> None:
    native_ops.multi_layer_block_kv_transfer(*Run(LARGE).arguments())  # the parent's threads exist
    child = multiprocessing.get_context("fork").Process(target=_transfer_and_compare)
    child.start()
    child.join(timeout=60)
    assert child.exitcode == 0


def _transfer_and_compare() -> None:
    torch.set_num_threads(1)  # torch's own threads do not survive a fork
    ours, theirs = Run(LARGE), Run(LARGE)
    theirs.run_baseline()
    native_ops.multi_layer_block_kv_transfer(*ours.arguments())
    assert all(torch.equal(one, other) for one, other in zip(ours.bytes, theirs.bytes, strict=True))


@pytest.mark.parametrize(("value", "count"), [("1", 1), ("64", 64), ("", 3), ("0", 3), ("two", 3), ("-1", 3)])
def test_the_number_of_threads_can_be_set(monkeypatch: pytest.MonkeyPatch, value: str, count: int) -> None:
    monkeypatch.setenv(cores.THREADS_VARIABLE, value)
    monkeypatch.setattr(cores, "_QUOTA", Path("/nonexistent"))
    assert cores.thread_count([0, 1, 5]) == count


@pytest.mark.parametrize(
    ("content", "count"), [("max 100000\n", 3), ("150000 100000\n", 2), ("50000 100000\n", 1), ("nonsense\n", 3)]
)
def test_a_containers_share_of_time_limits_the_threads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str, count: int
) -> None:
    (tmp_path / "cpu.max").write_text(content)
    monkeypatch.delenv(cores.THREADS_VARIABLE, raising=False)
    monkeypatch.setattr(cores, "_QUOTA", tmp_path / "cpu.max")
    assert cores.thread_count([0, 1, 2]) == count


def test_a_missing_library_is_an_import_error_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(library, "PATH", tmp_path / "libhostcpu.so")
    library.load.cache_clear()
    try:
        with pytest.raises(ImportError, match="install the wheel"):
            library.load()
    finally:
        library.load.cache_clear()
