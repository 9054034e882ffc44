"""LMCache device backends that the operator brings along, and what they can do. Pure.

A backend is a wheel that both vLLM and the LMCache server import (entry point group ``lmcache.device_plugins``);
``LMCACHE_DEVICE_BACKEND`` chooses it. A name that no wheel has ends both programs when they import LMCache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.engine.engine_values import CPU
from couchbase_lm_operator.core.verdict import Refuse

if TYPE_CHECKING:
    from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec

FIELD = "spec.accelerator.deviceBackend"
_PATH_VARIABLE = "PYTHONPATH"


@dataclass(frozen=True)
class DeviceBackend:
    """One backend: the ``vendor`` it is for, and whether its engines can hand their caches to the server."""

    name: str
    vendor: str
    has_handle_transfer: bool


_BACKENDS = {"hostcpu": DeviceBackend("hostcpu", CPU, has_handle_transfer=True)}


def device_backend(spec: LMCacheCouchbaseSpec) -> DeviceBackend | None:
    """Return the backend that the spec names; None for the vendor's own in LMCache."""
    return _BACKENDS.get(spec.accelerator.device_backend or "")


def refused_device_backend(spec: LMCacheCouchbaseSpec) -> Refuse | None:
    """Return why the spec's backend cannot be used, or None."""
    name, vendor = spec.accelerator.device_backend, spec.accelerator.vendor
    if name is None:
        return None
    offered = sorted(each.name for each in _BACKENDS.values() if each.vendor == vendor)
    remedy = f"use {' or '.join(offered)}, or remove it" if offered else "remove it to use LMCache's own for the vendor"
    backend = _BACKENDS.get(name)
    if backend is None or backend.vendor != vendor:
        known = f"is for vendor {backend.vendor}" if backend else "is not among those that this operator brings along"
        return Refuse(Reason.DEVICE_BACKEND_NOT_SUPPORTED, f"{FIELD} {name!r} {known}; with vendor {vendor} {remedy}.")
    if any(entry.get("name") == _PATH_VARIABLE for entry in spec.engine.env):
        return Refuse(
            Reason.ENV_NOT_ALLOWED,
            f"spec.engine.env sets {_PATH_VARIABLE}, by which the engine finds the backend of {FIELD}: remove it.",
        )
    return None
