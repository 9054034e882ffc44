"""The pod: volumes, mounts, times and scheduling around its containers. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator import names
from couchbase_lm_operator.core.pod_template import pod_paths
from couchbase_lm_operator.core.pod_template.added_wheels import added_wheels, wheel_containers
from couchbase_lm_operator.core.pod_template.engine_container import ENGINE_PORT, engine_arguments, engine_container
from couchbase_lm_operator.core.pod_template.pod_script import pod_script
from couchbase_lm_operator.core.pod_template.sidecar_container import sidecar_container
from couchbase_lm_operator.core.pod_template.workload import Part, Pod
from couchbase_lm_operator.core.quantity import format_bytes, parse_seconds

if TYPE_CHECKING:
    from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec
    from couchbase_lm_operator.core.pod_template.pod_inputs import PodInputs

STARTUP_PROBE_SECONDS = 5


@dataclass(frozen=True)
class GraceTimes:
    """How the grace period is shared out, all from the start of termination; seconds."""

    total_seconds: int
    endpoint_removal_seconds: int
    finish_seconds: int
    shutdown_seconds: int
    drain_seconds: int


def grace_times(text: str) -> GraceTimes:
    """Return the times for ``spec.terminationGracePeriod``.

    vLLM's preStop waits until no new requests are sent there and all are answered; those that are not within
    ``finish_seconds`` get an error. ``shutdown_seconds`` are for what comes while vLLM ends. Meanwhile the sidecar's
    preStop waits for vLLM's port to close and for stores in flight; the rest is for its own end, which waits for stores
    that were submitted. With 120 s: 5, 79, 5, all within 90.
    """
    total = parse_seconds(text)
    drain = total - min(30, total // 4)
    return GraceTimes(
        total_seconds=total,
        endpoint_removal_seconds=max(1, min(5, total // 10)),
        finish_seconds=drain - max(2, drain // 8),
        shutdown_seconds=max(1, min(5, drain // 16)),
        drain_seconds=drain,
    )


def pod(inputs: PodInputs) -> Pod:
    """Return everything the pod template shows.

    Raises:
        RefusedError: a figure in the spec that is none.
    """
    spec = inputs.spec
    times = grace_times(spec.termination_grace_period)
    startup_seconds = parse_seconds(spec.engine.startup_timeout)
    template = spec.pod_template
    metadata = template.metadata
    engine_mounts, sidecar_mounts, init_mounts = _mounts(spec)
    mode = inputs.transfer.lmcache_name
    arguments = engine_arguments(spec, inputs.values, inputs.sizing.layout, mode, times.shutdown_seconds)
    ports = (str(ENGINE_PORT), str(names.LMCACHE_HTTP_PORT))
    return Pod(
        labels={**(metadata.labels if metadata else {}), **names.child_labels(inputs.name)},
        annotations=dict(metadata.annotations) if metadata else {},
        init_containers=wheel_containers(inputs, init_mounts),
        sidecar=sidecar_container(inputs, sidecar_mounts),
        engine=engine_container(inputs, arguments, engine_mounts),
        engine_port=ENGINE_PORT,
        metrics_port_name=names.PORT_METRICS,
        metrics_port=names.ADAPTER_METRICS_PORT,
        volumes=_volumes(inputs),
        run_as_user=template.run_as_user,
        fs_group=template.fs_group or template.run_as_user,
        grace_seconds=times.total_seconds,
        startup_failure_threshold=max(1, -(-startup_seconds // STARTUP_PROBE_SECONDS)),
        startup_period_seconds=STARTUP_PROBE_SECONDS,
        probe_command=(spec.engine.python, "-ISc", pod_script("health.py"), str(names.LMCACHE_HTTP_PORT)),
        drain_command=(spec.engine.python, "-ISc", pod_script("drain.py"), *ports, str(times.drain_seconds)),
        warmup_command=_warmup_command(inputs, startup_seconds),
        stop_command=_stop_command(spec, times),
        scheduling=_scheduling(spec),
    )


def _stop_command(spec: LMCacheCouchbaseSpec, times: GraceTimes) -> tuple[str, ...]:
    values = (str(ENGINE_PORT), str(times.endpoint_removal_seconds), str(times.finish_seconds))
    return spec.engine.python, "-ISc", pod_script("stop_engine.py"), *values


def _warmup_command(inputs: PodInputs, startup_seconds: int) -> tuple[str, ...]:
    # LMCache leaves the last token of a prompt to the engine: one more than a chunk makes a full one
    prompt_tokens = min(inputs.sizing.chunk_size_tokens + 1, inputs.values.max_model_len - 1)
    values = (str(ENGINE_PORT), inputs.values.served_model_name, str(prompt_tokens), str(startup_seconds))
    return inputs.spec.engine.python, "-ISc", pod_script("warmup.py"), *values


def _mounts(spec: LMCacheCouchbaseSpec) -> tuple[tuple[Part, ...], tuple[Part, ...], tuple[Part, ...]]:
    """Return the mounts of vLLM, of the sidecar and of the init containers."""
    temporary = _mount(pod_paths.VOLUME_TEMPORARY, pod_paths.TEMPORARY)
    scratch = _mount(pod_paths.VOLUME_SCRATCH, pod_paths.SCRATCH)
    shared = [_mount(pod_paths.VOLUME_SHARED_MEMORY, pod_paths.SHARED_MEMORY), scratch, temporary]
    users = spec.pod_template.volume_mounts
    engine = list(shared)
    if pod_paths.needs_weights_volume(spec):
        engine.append(_mount(pod_paths.VOLUME_WEIGHTS, pod_paths.WEIGHTS))
    sidecar = [*shared, _mount(pod_paths.VOLUME_CREDENTIALS, pod_paths.CREDENTIALS, read_only=True)]
    if _certificates(spec) is not None:
        sidecar.append(_mount(pod_paths.VOLUME_CERTIFICATES, pod_paths.CERTIFICATES, read_only=True))
    for wheels in added_wheels(spec):
        sidecar.append(_mount(wheels.volume, wheels.folder, read_only=True))
        if wheels.is_for_engine:
            engine.append(_mount(wheels.volume, wheels.folder, read_only=True))
    return (*engine, *users), (*sidecar, *users), (scratch, temporary, *users)


def _mount(volume: str, path: str, *, read_only: bool = False) -> Part:
    return {"name": volume, "mountPath": path, **({"readOnly": True} if read_only else {})}


def _volumes(inputs: PodInputs) -> tuple[Part, ...]:
    spec = inputs.spec
    shared_memory = {"medium": "Memory", "sizeLimit": format_bytes(inputs.sizing.shared_memory_bytes)}
    volumes: list[Part] = [
        {"name": pod_paths.VOLUME_SHARED_MEMORY, "emptyDir": shared_memory},
        {"name": pod_paths.VOLUME_SCRATCH, "emptyDir": {}},
        {"name": pod_paths.VOLUME_TEMPORARY, "emptyDir": {}},
        {"name": pod_paths.VOLUME_CREDENTIALS, "secret": {"secretName": inputs.goal.secret_name}},
    ]
    certificates = _certificates(spec)
    if certificates is not None:
        volumes.append({"name": pod_paths.VOLUME_CERTIFICATES, **certificates})
    volumes += ({"name": wheels.volume, "emptyDir": {}} for wheels in added_wheels(spec))
    if pod_paths.needs_weights_volume(spec):
        volumes.append({"name": pod_paths.VOLUME_WEIGHTS, **_weights(spec)})
    return (*volumes, *spec.pod_template.volumes)


def _weights(spec: LMCacheCouchbaseSpec) -> Part:
    weights = spec.model.weights
    if weights is not None and weights.pvc is not None:
        return {"persistentVolumeClaim": {"claimName": weights.pvc.claim_name}}
    limit = weights.empty_dir.size_limit if weights is not None and weights.empty_dir is not None else None
    return {"emptyDir": {"sizeLimit": limit} if limit else {}}


def _certificates(spec: LMCacheCouchbaseSpec) -> Part | None:
    tls = spec.couchbase.tls
    if tls is not None and tls.ca_secret_ref is not None:
        return {"secret": {"secretName": tls.ca_secret_ref.name}}
    if tls is not None and tls.ca_config_map_ref is not None:
        return {"configMap": {"name": tls.ca_config_map_ref.name}}
    return None


def _scheduling(spec: LMCacheCouchbaseSpec) -> Part:
    template = spec.pod_template
    parts: dict[str, Any] = {
        "imagePullSecrets": template.image_pull_secrets,
        "nodeSelector": template.node_selector,
        "tolerations": template.tolerations,
        "affinity": template.affinity,
        "topologySpreadConstraints": template.topology_spread_constraints,
        "priorityClassName": template.priority_class_name,
        "schedulerName": template.scheduler_name,
        "serviceAccountName": template.service_account_name,
    }
    return {key: value for key, value in parts.items() if value}
