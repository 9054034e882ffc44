"""The check kit on backends of other people: each fault is found, with the reason that helps."""

from pathlib import Path
from typing import NamedTuple

import pytest
from python_processes import install, run_python, spec_source

pytestmark = pytest.mark.timeout(200)


class Fault(NamedTuple):
    source: str
    row: str
    reason: str
    entry: str = "toy = toy:Spec"


DECLARATIONS = {
    "declared under another name": Fault(
        spec_source(), "entry point", "no installed distribution declares 'toy'", "tory = toy:Spec"
    ),
    "an instance": Fault(
        spec_source() + "Spec = Spec()\n",
        "target",
        "toy:Spec is an instance of Spec; the entry point must name the class",
    ),
    "not derived": Fault("class Spec: pass\n", "target", "class Spec, which is not derived from LMCache's DeviceSpec"),
    "does not import": Fault(
        "import toy_driver\n", "target", "cannot be imported: ModuleNotFoundError: No module named"
    ),
    "constructor raises": Fault(
        spec_source("def __init__(self): raise OSError('no device 0')"),
        "target",
        "Spec() raises OSError: no device 0; LMCache skips the backend",
    ),
    "names differ": Fault(
        spec_source(backend="other"), "names", "is named 'toy', DeviceSpec.backend_name is 'other'; LMCache skips"
    ),
    "upper case": Fault(
        spec_source("device_type = 'CPU'"), "names", "DeviceSpec.device_type is 'CPU'; LMCache compares"
    ),
}
ROWS_OF_HANDLES = {
    "torch module": "torch.cpu lacks device, empty_cache, which LMCache calls",
    "IPC wrapper": "ipc_wrapper_cls is None: LMCache refuses the mode for want of a wrapper factory",
    "event backend": "event_ipc_backend is None",
    "cache context": "create_cache_context is not overridden",
}
ROWS_OF_OPERATIONS = {
    "operations object": "Ops.device_type is 'toy', not 'cpu'",
    "signatures": "batched_memcpy(sources, targets, sizes) differs from the baseline's (src_ptrs, dst_ptrs, sizes)",
    "NL_X_TWO_NB_BS_NH_HS": "differs from the torch baseline: torch.uint8, load, 1 block(s) skipped",
}
ROWS_OF_BINDINGS = {
    "light to import": "also loads toy.heavy while LMCache builds its registry",
    "IPC wrapper on the wire": "Own does not cross the wire: ValueError Unsupported IPC wrapper type",
    "event backend": "gives another object each time; futures ask often: keep the first",
}
OPERATIONS = """
def operations():
    from lmcache.v1.platform import torch_ops
    from lmcache.v1.platform.devices.cpu.device_ops import CpuDeviceOps

    class Ops(CpuDeviceOps):
        device_type = "toy"

        def batched_memcpy(self, sources, targets, sizes):
            pass

        def multi_layer_block_kv_transfer(
            self, paged_buffer_ptrs_tensor, lmcache_objects_ptrs: "list[Tensor]", block_ids, device, direction,
            shape_desc, lmcache_chunk_size, engine_kv_format, skip_prefix_n_blocks,
        ):
            torch_ops.multi_layer_block_kv_transfer(
                paged_buffer_ptrs_tensor, lmcache_objects_ptrs, block_ids, device, direction,
                shape_desc, lmcache_chunk_size, engine_kv_format, 0,
            )

    return Ops
"""
BINDINGS = """
@property
def ipc_wrapper_cls(self):
    from lmcache.v1.platform.devices.cpu.shm import CpuShmTensorWrapper, migrate_to_shm_and_wrap

    class Own(CpuShmTensorWrapper):
        @classmethod
        def wrap(cls, tensor):
            wrapped = migrate_to_shm_and_wrap(tensor)
            wrapped.__class__ = cls
            return wrapped

    return Own

@property
def event_ipc_backend(self):
    from lmcache.v1.platform.base.event_ipc import DefaultEventIPCBackend
    from lmcache.v1.platform.devices.cpu.stub_cpu_device import StubCPUDevice

    return DefaultEventIPCBackend(StubCPUDevice("cpu"), "cpu")
"""


def table_of(folder: Path, fault: Fault) -> tuple[int, list[str]]:
    install(folder, "toy", fault.source, fault.entry)
    done = run_python("-m", "lmcache_hostcpu.check", "toy", "--without-server", backend=None, path=folder)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout.splitlines()


def found(lines: list[str], fault: Fault) -> bool:
    """Whether the table says that the row failed for the reason."""
    return any(line.strip().startswith(f"✘ {fault.row} ") and fault.reason in line for line in lines)


@pytest.mark.parametrize("name", DECLARATIONS)
def test_a_declaration_that_is_wrong(name: str, tmp_path: Path) -> None:
    status, lines = table_of(tmp_path, DECLARATIONS[name])
    assert status == 1
    assert found(lines, DECLARATIONS[name]), "\n".join(lines)


def test_handles_of_which_nothing_is_there(tmp_path: Path) -> None:
    source = spec_source("def is_lmcache_driven_available(self): return True")
    assert_rows(tmp_path, source, ROWS_OF_HANDLES)


def test_operations_that_are_not_the_baselines(tmp_path: Path) -> None:
    source = OPERATIONS + spec_source("@property\ndef ops_cls(self): return operations()")
    assert_rows(tmp_path, source, ROWS_OF_OPERATIONS)


def test_bindings_that_do_not_hold(tmp_path: Path) -> None:
    source = spec_source(BINDINGS, base="CpuDeviceSpec") + "import toy.heavy\n"
    assert_rows(tmp_path, source, ROWS_OF_BINDINGS)


def assert_rows(folder: Path, source: str, rows: dict[str, str]) -> None:
    (folder / "toy").mkdir()
    (folder / "toy" / "heavy.py").write_text("")
    status, lines = table_of(folder, Fault(source, "", ""))
    assert status == 1
    missing = {row: reason for row, reason in rows.items() if not found(lines, Fault(source, row, reason))}
    assert not missing, "\n".join(lines)


def test_a_backend_that_is_not_there_on_this_host(tmp_path: Path) -> None:
    fault = Fault(
        spec_source("def is_available(self): return False"),
        "LMCACHE_DEVICE_BACKEND",
        "is registered but not available on this host",
    )
    status, lines = table_of(tmp_path, fault)
    assert status == 1
    assert found(lines, fault), "\n".join(lines)


def test_a_module_that_needs_all_of_lmcache_at_its_top(tmp_path: Path) -> None:
    source = "from lmcache.v1.platform.devices.cpu.shm import CpuShmTensorWrapper\n" + spec_source()
    status, lines = table_of(tmp_path, Fault(source, "", ""))
    assert status == 1
    assert found(lines, Fault(source, "registered", "LMCache has not registered it")), "\n".join(lines)
    assert any("Failed to load LMCache device plugin 'toy'" in line for line in lines), "\n".join(lines)


def test_two_distributions_of_one_name(tmp_path: Path) -> None:
    install(tmp_path, "toy", spec_source(), "toy = toy:Spec")
    install(tmp_path, "toy2", spec_source(), "toy = toy2:Spec")
    done = run_python("-m", "lmcache_hostcpu.check", "toy", backend=None, path=tmp_path)
    assert done.returncode == 1
    assert "✘ one provider" in done.stdout
    assert "2 distributions declare it: toy2 1.0 (toy2:Spec), toy 1.0 (toy:Spec)" in done.stdout


@pytest.mark.timeout(300)
def test_this_backend_in_every_mode_with_two_workers() -> None:
    done = run_python("-m", "lmcache_hostcpu.check", backend="hostcpu")
    assert done.returncode == 0, done.stdout
    assert ", 0 ✘, " in done.stdout
    for mode in ("engine-driven over SHM", "engine-driven over pickle", "LMCache-driven"):
        assert f"✔ {mode}, 2 workers" in done.stdout
    assert "✔ shared memory left behind          nothing of" in done.stdout
