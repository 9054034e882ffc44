"""Everything that is asked of a backend which LMCache has chosen; runs in a process with LMCACHE_DEVICE_BACKEND set."""

from __future__ import annotations

import os
import sys
from typing import Any

from lmcache_hostcpu.check.report import Failed, tell

TITLE = "Selection"
_PREREQUISITES = ("is_available", "device_count", "set_device", "current_device", "synchronize")
# What LMCache 0.5.6 itself calls on the device's module in the server, in LMCache-driven mode.
_SERVER_CALLS = ("device", "stream", "current_stream", "empty_cache")


def main(backend: str) -> None:
    """Check ``backend`` as LMCache's chosen one; rows go to standard output."""
    os.environ["LMCACHE_DEVICE_BACKEND"] = backend
    chosen: list[Any] = []
    tell(TITLE, "LMCACHE_DEVICE_BACKEND", lambda: _chosen(backend, chosen))
    if not chosen:
        return
    spec = chosen[0]
    tell(TITLE, "torch module", lambda: _module(spec))
    tell(TITLE, "data movement", lambda: _movement(spec))
    from lmcache_hostcpu.check import bandwidth, capabilities, operations

    operations.check(spec)
    capabilities.check(spec)
    bandwidth.check(spec)


def _chosen(backend: str, chosen: list[Any]) -> str:
    try:
        import lmcache
    except RuntimeError as error:
        raise Failed(
            f"{error}\nEach process that sets the variable ends like this while it imports LMCache; "
            f"is_available() has to return True on this host"
        ) from error
    from lmcache.v1.platform import current_device_spec

    if current_device_spec.backend_name != backend:
        raise Failed(f"LMCache has chosen {current_device_spec.backend_name!r}")
    if not hasattr(lmcache, "device_ops"):
        raise Failed("LMCache has no operations: DeviceSpec.get_ops() raised (see its warning above)")
    chosen.append(current_device_spec)
    return f"torch_dev={lmcache.torch_dev}, torch_device_type={lmcache.torch_device_type}"


def _module(spec: Any) -> str:
    import torch

    module = getattr(torch, spec.torch_module_name)
    missing = [name for name in _PREREQUISITES if not callable(getattr(module, name, None))]
    if spec.is_lmcache_driven_available():
        missing += [name for name in _SERVER_CALLS if not callable(getattr(module, name, None))]
    if missing:
        raise Failed(f"torch.{spec.torch_module_name} lacks {', '.join(missing)}, which LMCache calls")
    if not module.is_available():
        raise Failed(f"torch.{spec.torch_module_name}.is_available() is False")
    count = module.device_count()
    if count < 1:
        raise Failed(f"torch.{spec.torch_module_name}.device_count() is {count}")
    module.set_device(module.current_device())
    module.synchronize()
    return f"torch.{spec.torch_module_name}: {count} device(s)"


def _movement(spec: Any) -> str:
    import torch

    there = torch.arange(4096, dtype=torch.int32).to(spec.device_type)
    if there.device.type != spec.device_type:
        raise Failed(f"tensor.to({spec.device_type!r}) has put the tensor on {there.device}")
    if not torch.equal(there.cpu(), torch.arange(4096, dtype=torch.int32)):
        raise Failed(f"a tensor that went to {spec.device_type} and back is not the same")
    return f"tensors go to {spec.device_type} and back"


if __name__ == "__main__":
    main(sys.argv[1])
