"""Is the backend declared, loaded and registered as LMCache wants it? Runs in a process that does not choose it."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from typing import Any

from lmcache_hostcpu.check.report import Failed, NotApplicable, tell

GROUP = "lmcache.device_plugins"
TITLE = "Discovery"


def main(backend: str) -> None:
    """Check the declaration of ``backend``; rows go to standard output."""
    os.environ.pop("LMCACHE_DEVICE_BACKEND", None)  # a broken backend that is chosen stops LMCache while it is imported
    os.environ.pop("DEVICE_TYPE", None)
    entries = declared()
    own = [entry for entry in entries if entry.name == backend]
    tell(TITLE, "entry point", lambda: _declared(backend, entries, own))
    if not own:
        return
    tell(TITLE, "one provider", lambda: _single(own))
    loaded: list[Any] = []
    tell(TITLE, "target", lambda: _target(own[0], loaded))
    if not loaded:
        return
    tell(TITLE, "names", lambda: _names(own[0], loaded[0]))
    tell(TITLE, "registered", lambda: _registered(own[0], loaded[0]))
    tell(TITLE, "without LMCACHE_DEVICE_BACKEND", lambda: _unasked(loaded[0]))


def declared() -> list[importlib.metadata.EntryPoint]:
    """Return the declarations of all installed backends, in the order in which LMCache takes them."""
    return sorted(importlib.metadata.entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value))


def provider(entry: importlib.metadata.EntryPoint) -> str:
    """Return the distribution of an entry point, with its version."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unnamed distribution"


def _declared(
    backend: str, entries: list[importlib.metadata.EntryPoint], own: list[importlib.metadata.EntryPoint]
) -> str:
    if not own:
        others = ", ".join(f"{entry.name} ({provider(entry)})" for entry in entries) or "none"
        raise Failed(
            f"no installed distribution declares {backend!r} in entry-point group {GROUP}; declared are: {others}.\n"
            f"The name is DeviceSpec.backend_name in lower case; the wheel has to be installed in {sys.prefix}"
        )
    return f"{own[0].name} = {own[0].value} of {provider(own[0])}"


def _single(own: list[importlib.metadata.EntryPoint]) -> str:
    if len(own) > 1:
        names = ", ".join(f"{provider(entry)} ({entry.value})" for entry in own)
        raise Failed(f"{len(own)} distributions declare it: {names}.\nLMCache takes the first; uninstall the others")
    return "no other distribution declares this name"


def _target(entry: importlib.metadata.EntryPoint, loaded: list[Any]) -> str:
    from lmcache.v1.platform.base.device_spec import DeviceSpec

    try:
        target = entry.load()
    except Exception as error:  # a backend may raise anything while it is imported
        raise Failed(f"{entry.value} cannot be imported: {type(error).__name__}: {error}") from error
    if not isinstance(target, type):
        kind = f"an instance of {type(target).__name__}" if isinstance(target, DeviceSpec) else type(target).__name__
        raise Failed(f"{entry.value} is {kind}; the entry point must name the class itself")
    if target is DeviceSpec or not issubclass(target, DeviceSpec):
        raise Failed(f"{entry.value} is class {target.__qualname__}, which is not derived from LMCache's DeviceSpec")
    try:
        loaded.append(target())
    except Exception as error:
        raise Failed(
            f"{target.__qualname__}() raises {type(error).__name__}: {error}; LMCache skips the backend. "
            f"Its constructor takes no arguments and touches no device"
        ) from error
    return f"class {target.__qualname__}, constructed without arguments"


def _names(entry: importlib.metadata.EntryPoint, spec: Any) -> str:
    for field in ("device_type", "backend_name", "torch_module_name"):
        value = getattr(spec, field)
        if not isinstance(value, str) or not value:
            raise Failed(f"DeviceSpec.{field} is {value!r}; it must be a text that is not empty")
        if field != "torch_module_name" and value != value.lower():
            raise Failed(f"DeviceSpec.{field} is {value!r}; LMCache compares in lower case and skips other names")
    if spec.backend_name != entry.name:
        raise Failed(
            f"the entry point is named {entry.name!r}, DeviceSpec.backend_name is {spec.backend_name!r}; LMCache skips "
            f"backends whose names differ"
        )
    return f"backend {spec.backend_name}, device type {spec.device_type}, torch.{spec.torch_module_name}"


def _registered(entry: importlib.metadata.EntryPoint, spec: Any) -> str:
    from lmcache.v1.platform._device_detect import _build_backend_registry

    registry = _build_backend_registry()
    known = registry.get(entry.name)
    if known is None:
        raise Failed(
            f"LMCache has not registered it; registered are {', '.join(sorted(registry))}.\n"
            f"The entry point's module may import only lmcache.v1.platform.base.* at its top: the rest of LMCache is "
            f"not loaded yet when the registry is built"
        )
    if type(known) is not type(spec):
        place = f"{type(known).__module__}.{type(known).__qualname__}"
        raise Failed(f"the name belongs to {place}, which LMCache found first; choose another backend_name")
    sharing = sorted(
        name for name, other in registry.items() if other.device_type == spec.device_type and name != entry.name
    )
    note = f"; shares device type {spec.device_type} with {', '.join(sharing)}" if sharing else ""
    return f"one of {len(registry)} backends{note}"


def _unasked(spec: Any) -> str:
    if spec.is_available():
        return "available: LMCache may choose it on this host by itself"
    raise NotApplicable("not available here unless it is asked for")


if __name__ == "__main__":
    main(sys.argv[1])
