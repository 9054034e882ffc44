"""What the backend tells LMCache about itself."""

import pytest
import torch
from lmcache.v1.multiprocess.transfer_mode import MPTransferMode
from lmcache.v1.platform import current_device_spec, resolve_device_ops, torch_dev
from lmcache.v1.platform.base.event_ipc import EventIPCBackend, get_event_ipc_backend

from lmcache_hostcpu.spec import HostCpuDeviceSpec
from lmcache_hostcpu.torch_module import Event

CPU = torch.device("cpu")


def test_lmcache_has_chosen_it() -> None:
    assert isinstance(current_device_spec, HostCpuDeviceSpec)
    assert torch_dev is torch.hostcpu
    assert type(resolve_device_ops("cpu")).__name__ == "HostCpuDeviceOps"


@pytest.mark.parametrize(
    ("value", "is_available"), [("hostcpu", True), (" HostCPU ", True), ("cuda", False), ("", False)]
)
def test_is_there_only_for_those_who_name_it(value: str, is_available: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMCACHE_DEVICE_BACKEND", value)
    assert HostCpuDeviceSpec().is_available() is is_available


def test_auto_leaves_the_engine_its_memory() -> None:
    assert current_device_spec.default_mp_transfer_mode() is MPTransferMode.ENGINE_DRIVEN


def test_has_one_event_backend() -> None:
    backend = current_device_spec.event_ipc_backend
    assert isinstance(backend, EventIPCBackend)
    assert backend is current_device_spec.event_ipc_backend is get_event_ipc_backend(CPU)


@pytest.mark.parametrize("device", [CPU, torch.device("cpu", 0), "cpu", "cpu:0", 0])
def test_orders_work_of_the_host(device: object) -> None:
    current_device_spec.event_ipc_backend.check_event_support(device)


@pytest.mark.parametrize("device", [torch.device("cuda", 0), torch.device("meta"), "xpu"])
def test_refuses_to_order_work_of_other_devices(device: object) -> None:
    with pytest.raises(RuntimeError, match="orders work of the host CPU only"):
        current_device_spec.event_ipc_backend.check_event_support(device)


def test_an_event_goes_to_another_process() -> None:
    backend = current_device_spec.event_ipc_backend
    event = backend.create_event(CPU)
    backend.record_event(event, torch_dev.current_stream())
    imported = backend.import_event(backend.export_event(event, CPU), CPU)
    backend.wait_event(imported, torch_dev.current_stream())
    backend.synchronize_event(imported, CPU)
    assert backend.query_event(imported) is True


def test_an_event_of_lmcaches_own_cpu_backend_is_understood() -> None:
    from lmcache.v1.platform.devices.cpu.stub_cpu_device import StubEvent

    handle = StubEvent(interprocess=True).ipc_handle()
    assert current_device_spec.event_ipc_backend.import_event(handle, CPU).query()


def test_an_event_that_was_not_recorded_is_not_exported() -> None:
    backend = current_device_spec.event_ipc_backend
    with pytest.raises(RuntimeError, match="record it before"):
        backend.export_event(backend.create_event(CPU), CPU)


def test_an_event_of_this_process_only_is_not_exported() -> None:
    with pytest.raises(RuntimeError, match="interprocess=True"):
        current_device_spec.event_ipc_backend.export_event(Event(), CPU)


@pytest.mark.parametrize("handle", [b"", b"\x00" * 64, b"hostcpu"])
def test_the_event_of_another_device_is_refused(handle: bytes) -> None:
    with pytest.raises(RuntimeError, match="not made by a host CPU backend"):
        current_device_spec.event_ipc_backend.import_event(handle, CPU)


def test_pages_are_locked_within_the_limit_of_the_process() -> None:
    buffer = torch.zeros(1 << 16, dtype=torch.uint8)
    assert current_device_spec.pin_memory(buffer.data_ptr(), buffer.numel())
    assert current_device_spec.unpin_memory(buffer.data_ptr())
    assert not current_device_spec.unpin_memory(buffer.data_ptr())
    assert not current_device_spec.pin_memory(1 << 60, 4096)


def test_pools_stay_shareable() -> None:
    assert current_device_spec.is_pin_supported is False


def test_memory_at_an_address_is_a_tensor() -> None:
    origin = torch.arange(12, dtype=torch.int16)
    tensor = resolve_device_ops("cpu").tensor_from_ptr(origin.data_ptr(), (3, 4), torch.int16, CPU)
    tensor[1, 1] = 77
    assert origin[5] == 77
