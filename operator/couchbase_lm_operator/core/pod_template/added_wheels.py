"""Wheels that are put beside what the engine image has: the Couchbase adapter, and a device backend. Pure.

Each has a volume of its own and two init containers. The first one (operator image) copies wheels and a
standard-library installer, the second one (engine image) unpacks the wheel that fits its own interpreter: some engine
images have no pip.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from couchbase_lm_operator import names
from couchbase_lm_operator.core.pod_template import pod_paths
from couchbase_lm_operator.core.pod_template.workload import Container, Part

if TYPE_CHECKING:
    from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec
    from couchbase_lm_operator.core.pod_template.pod_inputs import PodInputs

_BACKEND_VARIABLE = "LMCACHE_DEVICE_BACKEND"
_RESOURCES: Part = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}


@dataclass(frozen=True)
class AddedWheels:
    """One set of wheels: where the operator image has them, and the volume with its mount path in the pod."""

    source: str
    volume: str
    folder: str
    copy_container: str
    install_container: str
    is_for_engine: bool

    @property
    def site(self) -> str:
        """Return the entry for PYTHONPATH."""
        return f"{self.folder}/site"


def added_wheels(spec: LMCacheCouchbaseSpec) -> tuple[AddedWheels, ...]:
    """Return the sets of a pod. The LMCache server gets all of them, vLLM those that are for the engine."""
    plugin = AddedWheels(
        source="/opt/wheelhouse",
        volume=pod_paths.VOLUME_PLUGIN,
        folder=pod_paths.PLUGIN,
        copy_container=names.CONTAINER_WHEELHOUSE,
        install_container=names.CONTAINER_INSTALL,
        is_for_engine=False,
    )
    backend = spec.accelerator.device_backend
    device = AddedWheels(
        source=f"/opt/devices/{backend}",
        volume=pod_paths.VOLUME_DEVICE,
        folder=pod_paths.DEVICE,
        copy_container=names.CONTAINER_DEVICE_WHEELHOUSE,
        install_container=names.CONTAINER_DEVICE_INSTALL,
        is_for_engine=True,
    )
    return ((plugin,) if spec.plugin.source == "Bundled" else ()) + ((device,) if backend is not None else ())


def wheel_environment(spec: LMCacheCouchbaseSpec, *, is_engine: bool) -> list[Part]:
    """Return the variables by which a container finds its wheels, and LMCache the device backend among them."""
    sites = [wheels.site for wheels in added_wheels(spec) if wheels.is_for_engine or not is_engine]
    backend = spec.accelerator.device_backend
    values = {"PYTHONPATH": ":".join(sites) or None, _BACKEND_VARIABLE: backend}
    return [{"name": name, "value": value} for name, value in values.items() if value is not None]


def wheel_containers(inputs: PodInputs, mounts: tuple[Part, ...]) -> tuple[Container, ...]:
    """Return the init containers; none when the image has everything already.

    ``mounts`` are those of every init container; each set's own volume is added.
    """
    return tuple(
        container
        for wheels in added_wheels(inputs.spec)
        for container in _containers(inputs, wheels, ({"name": wheels.volume, "mountPath": wheels.folder}, *mounts))
    )


def _containers(inputs: PodInputs, wheels: AddedWheels, mounts: tuple[Part, ...]) -> tuple[Container, Container]:
    spec = inputs.spec
    copy = Container(
        name=wheels.copy_container,
        image=inputs.defaults.operator_image,
        pull_policy="IfNotPresent",
        command=("python3", "-m", "couchbase_lm_operator.wheelhouse"),
        args=("copy", wheels.folder, "--source", wheels.source),
        env=({"name": "HOME", "value": pod_paths.TEMPORARY},),
        env_from=(),
        resources=_RESOURCES,
        volume_mounts=mounts,
    )
    install = Container(
        name=wheels.install_container,
        image=inputs.values.image,
        pull_policy=spec.engine.image_pull_policy,
        command=(spec.engine.python, f"{wheels.folder}/install.py"),
        args=("--from", f"{wheels.folder}/wheelhouse", "--into", wheels.site),
        env=tuple(pod_paths.shared_environment()),
        env_from=(),
        resources=_RESOURCES,
        volume_mounts=mounts,
    )
    return (copy, install)
