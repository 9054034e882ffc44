"""The two init containers that put the Couchbase adapter beside LMCache. Pure.

The first one (operator image) copies wheels and a standard-library installer, the second one (engine
image) unpacks the wheel that fits its own interpreter: some engine images have no pip.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from couchbase_lm_operator import names
from couchbase_lm_operator.core import pod_paths
from couchbase_lm_operator.core.workload import Container, Part

if TYPE_CHECKING:
    from couchbase_lm_operator.core.pod_inputs import PodInputs

_RESOURCES: Part = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}


def plugin_containers(inputs: PodInputs, mounts: tuple[Part, ...]) -> tuple[Container, ...]:
    """Return the init containers; none when the image has the plugin already."""
    spec = inputs.spec
    if spec.plugin.source == "Preinstalled":
        return ()
    plugin = pod_paths.PLUGIN
    copy = Container(
        name=names.CONTAINER_WHEELHOUSE,
        image=inputs.defaults.operator_image,
        pull_policy="IfNotPresent",
        command=("python3", "-m", "couchbase_lm_operator.wheelhouse"),
        args=("copy", plugin),
        env=({"name": "HOME", "value": pod_paths.TEMPORARY},),
        env_from=(),
        resources=_RESOURCES,
        volume_mounts=mounts,
    )
    install = Container(
        name=names.CONTAINER_INSTALL,
        image=inputs.values.image,
        pull_policy=spec.engine.image_pull_policy,
        command=(spec.engine.python, f"{plugin}/install.py"),
        args=("--from", f"{plugin}/wheelhouse", "--into", f"{plugin}/site"),
        env=tuple(pod_paths.shared_environment()),
        env_from=(),
        resources=_RESOURCES,
        volume_mounts=mounts,
    )
    return (copy, install)
