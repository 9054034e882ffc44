"""The workload of one resource as its templates show it: every value final, nothing left to compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator import names
from couchbase_lm_operator.core.quantity import parse_seconds

if TYPE_CHECKING:
    from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec

Part = dict[str, Any]


@dataclass(frozen=True)
class Container:
    """One container. ``command``, ``args`` and ``env`` are as they stand in the manifest."""

    name: str
    image: str
    pull_policy: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    env: tuple[Part, ...]
    env_from: tuple[Part, ...]
    resources: Part
    volume_mounts: tuple[Part, ...]


@dataclass(frozen=True)
class Pod:
    """What the pod template is made of. ``scheduling`` holds further fields of the pod's spec as they are."""

    labels: dict[str, str]
    annotations: dict[str, str]
    init_containers: tuple[Container, ...]
    sidecar: Container
    engine: Container
    engine_port: int
    metrics_port_name: str
    metrics_port: int
    volumes: tuple[Part, ...]
    run_as_user: int
    fs_group: int
    grace_seconds: int
    startup_failure_threshold: int
    startup_period_seconds: int
    probe_command: tuple[str, ...]
    drain_command: tuple[str, ...]
    warmup_command: tuple[str, ...]
    stop_command: tuple[str, ...]
    scheduling: Part


@dataclass(frozen=True)
class Frame:
    """Deployment and Service of one resource around its pods: what may change while those stay as they are."""

    name: str
    namespace: str
    labels: dict[str, str]
    selector: dict[str, str]
    replicas: int
    max_surge: int | str
    max_unavailable: int | str
    progress_deadline_seconds: int
    service_type: str
    service_port: int
    service_annotations: dict[str, str]


@dataclass(frozen=True)
class Workload:
    """Deployment and Service of one resource."""

    frame: Frame
    pod: Pod


def frame(spec: LMCacheCouchbaseSpec, namespace: str, name: str) -> Frame:
    """Return what surrounds the pods of a resource; it needs nothing but the spec."""
    return Frame(
        name=name,
        namespace=namespace,
        labels=names.child_labels(name),
        selector=names.selector_labels(name),
        replicas=spec.replicas,
        max_surge=spec.rollout.max_surge,
        max_unavailable=spec.rollout.max_unavailable,
        progress_deadline_seconds=2 * parse_seconds(spec.engine.startup_timeout),
        service_type=spec.service.type,
        service_port=spec.service.port,
        service_annotations=dict(spec.service.annotations),
    )
