"""The vLLM container: command, arguments, environment and resources. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator import names
from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.engine import cpu_cache_space
from couchbase_lm_operator.core.engine.engine_values import CPU
from couchbase_lm_operator.core.engine.flags import escaped
from couchbase_lm_operator.core.pod_template import pod_paths
from couchbase_lm_operator.core.pod_template.added_wheels import wheel_environment
from couchbase_lm_operator.core.pod_template.workload import Container, Part
from couchbase_lm_operator.core.quantity import GIB, format_bytes, parse_bytes
from couchbase_lm_operator.core.refusal import RefusedError

if TYPE_CHECKING:
    from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec
    from couchbase_lm_operator.core.engine.engine_values import EngineValues
    from couchbase_lm_operator.core.pod_template.pod_inputs import PodInputs
    from couchbase_lm_operator.core.sizing.kv_layout import KvLayout
    from couchbase_lm_operator.core.sizing.sizing import Sizing

ENGINE_PORT = 8000
_MQ_TIMEOUT_SECONDS = 30
_HEARTBEAT_SECONDS = 3
_CPU_OVERHEAD_BYTES = 3 * GIB
_GPU_HOST_MEMORY_BYTES = 8 * GIB
_DEFAULT_CPU_REQUEST = {CPU: "1", "NVIDIA": "2"}


def engine_flags(
    spec: LMCacheCouchbaseSpec, values: EngineValues, kv: KvLayout, shutdown_seconds: int
) -> dict[str, str]:
    """Return the flags of ``vllm serve`` that the operator owns, with their values; "" for one that takes none.

    That of the transfer is not among them: it changes nothing in what is computed. ``kv`` is the layout that the flags
    have to bring about; ``shutdown_seconds`` is how long vLLM may go on with requests after SIGTERM.
    """
    layout = values.layout
    flags: dict[str, str | int | None] = {
        "--revision": values.revision or None,
        "--served-model-name": values.served_model_name,
        "--port": ENGINE_PORT,
        "--dtype": layout.dtype,
        "--kv-cache-dtype": layout.kv_cache_dtype,
        "--max-model-len": values.max_model_len,
        "--block-size": values.block_flag_tokens,
        "--attention-backend": layout.attention_backend,
        "--tensor-parallel-size": layout.tensor_parallel_size,
        "--pipeline-parallel-size": layout.pipeline_parallel_size,
        "--disable-hybrid-kv-cache-manager": None if layout.hybrid_kv_cache else "",
        **kv.required_flags.get("vllm", {}),
        "--gpu-memory-utilization": spec.engine.gpu_memory_utilization,
        "--shutdown-timeout": shutdown_seconds,
    }
    if layout.max_num_batched_tokens is not None:
        # it is the user's, among the extra arguments
        flags.pop("--max-num-batched-tokens", None)
    return {name: str(value) for name, value in flags.items() if value is not None}


def engine_arguments(
    spec: LMCacheCouchbaseSpec, values: EngineValues, kv: KvLayout, transfer_mode: str, shutdown_seconds: int
) -> list[str]:
    """Return the arguments of ``vllm serve`` that the operator owns, unescaped; see ``engine_flags``.

    ``transfer_mode`` is LMCache's word for who copies.
    """
    flags = engine_flags(spec, values, kv, shutdown_seconds)
    flags["--kv-transfer-config"] = _transfer_config(transfer_mode)
    return ["serve", values.model, *(part for flag in flags.items() for part in flag if part)]


def engine_container(inputs: PodInputs, owned_arguments: list[str], mounts: tuple[Part, ...]) -> Container:
    """Return the vLLM container; users' arguments and variables come last, as they wrote them.

    Raises:
        RefusedError: a memory figure in ``spec.engine.resources`` is no quantity.
    """
    spec, values = inputs.spec, inputs.values
    return Container(
        name=names.CONTAINER_VLLM,
        image=values.image,
        pull_policy=spec.engine.image_pull_policy,
        command=(spec.engine.python, "-m", "vllm.entrypoints.cli.main"),
        args=(*map(escaped, owned_arguments), *spec.engine.extra_args),
        env=_environment(spec, values),
        env_from=tuple(spec.engine.env_from),
        resources=_resources(spec, values, inputs.sizing),
        volume_mounts=mounts,
    )


def _transfer_config(transfer_mode: str) -> str:
    # A load that fails is computed instead of failing the request (vLLM's default is "fail"). A sidecar that
    # is gone is noticed after seconds, not after LMCache's 300; much less would give up on a busy one.
    config = {
        "kv_connector": "LMCacheMPConnector",
        "kv_connector_module_path": "lmcache.integration.vllm.lmcache_mp_connector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {
            "lmcache.mp.host": "tcp://127.0.0.1",
            "lmcache.mp.port": names.LMCACHE_QUEUE_PORT,
            "lmcache.mp.mq_timeout": _MQ_TIMEOUT_SECONDS,
            "lmcache.mp.heartbeat_interval": _HEARTBEAT_SECONDS,
            "lmcache.mp.mp_transfer_mode": transfer_mode,
        },
    }
    return json.dumps(config, separators=(",", ":"))


def _environment(spec: LMCacheCouchbaseSpec, values: EngineValues) -> tuple[Part, ...]:
    ours = [*pod_paths.shared_environment(), {"name": "HF_HOME", "value": pod_paths.hub_folder(spec)}]
    ours += wheel_environment(spec, is_engine=True)
    hub = spec.model.config.hub if spec.model.config else None
    if values.is_path:
        ours.append({"name": "HF_HUB_OFFLINE", "value": "1"})
    elif hub is not None:
        ours.append({"name": "HF_ENDPOINT", "value": escaped(hub.endpoint)})
    token = spec.model.token_secret_ref
    if token is not None:
        reference = {"name": token.name, "key": token.key}
        ours.append({"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": reference}})
    if values.vendor == CPU:
        ours.append({"name": cpu_cache_space.VARIABLE, "value": str(cpu_cache_space.DEFAULT_GIB)})
        # threads float over the cores the container gets: binding needs a NUMA view that pods lack
        ours.append({"name": "VLLM_CPU_OMP_THREADS_BIND", "value": "nobind"})
    return pod_paths.merged_environment(ours, spec.engine.env)


def _resources(spec: LMCacheCouchbaseSpec, values: EngineValues, sizing: Sizing) -> Part:
    given = spec.engine.resources or {}
    limits: dict[str, Any] = dict(given.get("limits") or {})
    requests: dict[str, Any] = dict(given.get("requests") or {})
    default_bytes = _GPU_HOST_MEMORY_BYTES
    if values.vendor == CPU:
        default_bytes = cpu_cache_space.cpu_cache_bytes(spec) + _CPU_OVERHEAD_BYTES
    if "memory" in limits:
        limit_bytes = _memory(limits["memory"], "limits")
        default_bytes = min(default_bytes, limit_bytes)
        limits["memory"] = format_bytes(limit_bytes + sizing.shared_memory_bytes)
    requests.setdefault("memory", format_bytes(default_bytes))
    requests.setdefault("cpu", limits.get("cpu", _DEFAULT_CPU_REQUEST[values.vendor]))
    if values.vendor != CPU:
        gpus = str(values.gpu_count)
        resource = spec.accelerator.resource_name or "nvidia.com/gpu"
        requests[resource] = limits[resource] = gpus
    return {**given, "requests": requests, "limits": limits} if limits else {**given, "requests": requests}


def _memory(value: object, kind: str) -> int:
    try:
        return parse_bytes(str(value))
    except ValueError as error:
        raise RefusedError(Reason.INVALID_SPEC, f"spec.engine.resources.{kind}.memory: {error}.") from error
