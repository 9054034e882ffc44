"""Every reason for which LMCache refuses a backend or one of its modes, as its guide for backends states them."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from lmcache.v1.multiprocess.transfer_context import create_transfer_context
from lmcache.v1.platform import cache_context, current_device_spec
from lmcache.v1.platform.base.device_spec import DeviceSpec
from python_processes import install, run_python, spec_source

from lmcache_hostcpu.ipc_wrapper import HostCpuIPCWrapper
from lmcache_hostcpu.spec import HostCpuDeviceSpec

SKIPPED = {
    "an instance instead of the class": (
        spec_source() + "Spec = Spec()\n",
        "toy = toy:Spec",
        "entry point must resolve to a DeviceSpec subclass",
    ),
    "a factory instead of the class": (
        spec_source() + "def make(): return Spec()\n",
        "toy = toy:make",
        "entry point must resolve to a DeviceSpec subclass",
    ),
    "a class of something else": ("class Spec: pass\n", "toy = toy:Spec", "must resolve to a DeviceSpec subclass"),
    "the base class": (spec_source(), "toy = toy:DeviceSpec", "must resolve to a DeviceSpec subclass"),
    "no such class": (spec_source(), "toy = toy:Missing", "has no attribute 'Missing'"),
    "a module that raises": ("raise OSError('driver 3 is too old')\n", "toy = toy:Spec", "driver 3 is too old"),
    "a constructor that raises": (
        spec_source("def __init__(self): raise OSError('no device')"),
        "toy = toy:Spec",
        "no device",
    ),
    "a constructor with arguments": (
        spec_source("def __init__(self, index): pass"),
        "toy = toy:Spec",
        "missing 1 required positional argument",
    ),
    "another name than the entry point's": (
        spec_source(backend="other"),
        "toy = toy:Spec",
        "entry-point name must match DeviceSpec.backend_name ('toy' != 'other')",
    ),
    "a name in upper case": (spec_source(backend="Toy"), "Toy = toy:Spec", "must be a non-empty lowercase string"),
    "no name": (spec_source(backend=""), "toy = toy:Spec", "must be a non-empty lowercase string"),
}


@pytest.fixture(scope="module")
def skipped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What LMCache says to each of them; the registry is built in one process, one after the other."""
    names = list(SKIPPED)
    folders = []
    for name in names:
        source, entry, _ = SKIPPED[name]
        folders.append(str(install(tmp_path_factory.mktemp("toy"), "toy", source, entry)))
    work = f"""
import sys, lmcache
from lmcache.v1.platform._device_detect import _build_backend_registry
for folder in {folders!r}:
    sys.modules.pop("toy", None)
    sys.path.insert(0, folder)
    _build_backend_registry.cache_clear()
    print("== REGISTRY", sorted(_build_backend_registry()), file=sys.stderr, flush=True)
    sys.path.remove(folder)
"""
    done = run_python("-c", work)
    said = done.stderr.split("== REGISTRY")
    assert len(said) == len(names) + 1, done.stderr
    said = [before + after.splitlines()[0] for before, after in pairwise(said)]
    return dict(zip(names, said, strict=True))


@pytest.mark.parametrize("name", SKIPPED)
def test_lmcache_skips_a_backend_with(name: str, skipped: dict[str, str]) -> None:
    assert "Failed to load LMCache device plugin" in skipped[name]
    assert SKIPPED[name][2] in skipped[name]
    assert "'hostcpu'" in skipped[name].splitlines()[-1]


def caches() -> dict[str, torch.Tensor]:
    return {"layer.0": torch.zeros(2, 4, 16, 2, 8, dtype=torch.bfloat16)}


def driven(client: object = None) -> Any:
    return create_transfer_context(caches(), instance_id=1, req_client=client, mode="lmcache_driven")


def register(context: Any) -> None:
    context.register(caches(), "model", 1, 4, 1.0)


class NoClient:
    """Fails the test if a request is made."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a request was made: {name}")


def test_no_handles_without_a_wrapper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostCpuDeviceSpec, "ipc_wrapper_cls", None)
    with pytest.raises(ValueError, match=r"no KV-cache wrapper factory is registered.*Use mode 'engine_driven'"):
        driven()


def test_no_handles_where_the_backend_denies_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostCpuDeviceSpec, "is_lmcache_driven_available", lambda _: False)
    with pytest.raises(ValueError, match=r"required platform capability checks failed.*Use mode 'engine_driven'"):
        driven()


def test_no_registration_without_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostCpuDeviceSpec, "event_ipc_backend", None)
    with pytest.raises(RuntimeError, match="does not support event IPC"):
        register(driven(NoClient()))


def test_no_registration_where_events_are_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("no events here")

    monkeypatch.setattr(type(current_device_spec.event_ipc_backend), "check_event_support", refuse)
    with pytest.raises(RuntimeError, match="no events here"):
        register(driven(NoClient()))


def test_no_mapping_without_a_cache_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostCpuDeviceSpec, "create_cache_context", DeviceSpec.create_cache_context)
    wrapped = HostCpuIPCWrapper.wrap(caches()["layer.0"])
    with pytest.raises(NotImplementedError, match="does not provide a BaseCacheContext"):
        cache_context.create_cache_context([wrapped])


def test_no_transfer_before_registration() -> None:
    with pytest.raises(RuntimeError, match="not registered"):
        driven(NoClient()).create_recorded_event()


def test_no_mode_of_another_name() -> None:
    with pytest.raises(ValueError, match="Invalid MP transfer mode 'handles'"):
        create_transfer_context(caches(), instance_id=1, req_client=None, mode="handles")


def test_no_address_without_the_backends_own_operation() -> None:
    from lmcache.v1.platform.base.device_ops import DeviceOps

    with pytest.raises(ValueError, match="does not support tensor construction from raw pointers"):
        DeviceOps().tensor_from_ptr(1, (1,), torch.uint8, torch.device("cpu"))


def test_a_named_backend_that_is_not_available_stops_lmcache(tmp_path: Path) -> None:
    install(tmp_path, "toy", spec_source("def is_available(self): return False"), "toy = toy:Spec")
    done = run_python("-c", "import lmcache", backend="toy", path=tmp_path)
    assert "LMCACHE_DEVICE_BACKEND='toy' is registered but not available on this host" in done.stderr


def test_a_backend_without_its_torch_module_stops_lmcache(tmp_path: Path) -> None:
    install(tmp_path, "toy", spec_source("torch_module_name = 'toy'"), "toy = toy:Spec")
    done = run_python("-c", "import lmcache", backend="toy", path=tmp_path)
    assert "torch has no module 'toy'" in done.stderr
