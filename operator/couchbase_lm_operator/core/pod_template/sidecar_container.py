"""The LMCache server beside vLLM, with the Couchbase adapter as its second level. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator import names
from couchbase_lm_operator.core.engine.engine_values import CPU
from couchbase_lm_operator.core.engine.flags import escaped
from couchbase_lm_operator.core.pod_template import pod_paths
from couchbase_lm_operator.core.pod_template.added_wheels import wheel_environment
from couchbase_lm_operator.core.pod_template.workload import Container, Part
from couchbase_lm_operator.core.quantity import GIB, format_bytes, parse_seconds

if TYPE_CHECKING:
    from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec
    from couchbase_lm_operator.core.engine.engine_values import EngineValues
    from couchbase_lm_operator.core.pod_template.pod_inputs import PodInputs
    from couchbase_lm_operator.core.sizing.sizing import Sizing
    from couchbase_lm_operator.core.sizing.transfer import Transfer

SHARED_MEMORY_NAME = "lmcache"
DEAD_ENGINE_SECONDS = 120
"""How long an engine may be silent before the server lets go of its memory: forty heartbeats."""
_OVERHEAD_BYTES = 2 * GIB
_CPU_REQUEST = "200m"


def sidecar_container(inputs: PodInputs, mounts: tuple[Part, ...]) -> Container:
    """Return the container of ``lmcache server``: same image and interpreter as vLLM."""
    spec = inputs.spec
    return Container(
        name=names.CONTAINER_LMCACHE,
        image=inputs.values.image,
        pull_policy=spec.engine.image_pull_policy,
        command=(spec.engine.python, "-m", "lmcache.cli.main"),
        args=(*map(escaped, _arguments(inputs)), *spec.cache.extra_args),
        env=_environment(spec, inputs.values),
        env_from=(),
        resources=_resources(spec, inputs.sizing),
        volume_mounts=mounts,
    )


def _arguments(inputs: PodInputs) -> list[str]:
    sizing = inputs.sizing
    return [
        "server",
        # queue and HTTP port are unauthenticated, and the queue unpickles what it gets
        "--host",
        "127.0.0.1",
        "--port",
        str(names.LMCACHE_QUEUE_PORT),
        "--http-host",
        "127.0.0.1",
        "--http-port",
        str(names.LMCACHE_HTTP_PORT),
        "--chunk-size",
        str(sizing.chunk_size_tokens),
        "--l1-size-gb",
        f"{sizing.l1_bytes / GIB:.9g}",
        # the pool must exist before vLLM maps it, else both fall back to copies through the queue
        "--no-l1-use-lazy",
        "--eviction-policy",
        "LRU",
        *_transfer_flags(inputs.transfer),
        *_layout_flags(inputs),
        "--l2-adapter",
        json.dumps(_adapter(inputs), separators=(",", ":")),
    ]


def _transfer_flags(transfer: Transfer) -> list[str]:
    mode = ["--supported-transfer-mode", transfer.lmcache_name]
    if transfer.is_engine_driven:
        # one engine per server: an idle worker that was reaped would kill the engine at its next request
        return [*mode, "--shm-name", SHARED_MEMORY_NAME, "--worker-reap-timeout-seconds", "0"]
    # until it is reaped, an engine that was killed holds its whole KV cache, mapped here, in shared memory; one that
    # lives gives a sign of it every few seconds since its warm-up
    return [*mode, "--worker-reap-timeout-seconds", str(DEAD_ENGINE_SECONDS)]


def _layout_flags(inputs: PodInputs) -> list[str]:
    required = inputs.sizing.layout.required_flags.get("lmcache", {})
    return [part for flag in required.items() for part in flag if part]


def _adapter(inputs: PodInputs) -> dict[str, Any]:
    spec, goal = inputs.spec, inputs.goal
    params: dict[str, Any] = {
        **(spec.cache.adapter_params or {}),
        "connection_string": goal.connection_string,
        "username_file": f"{pod_paths.CREDENTIALS}/username",
        "password_file": f"{pod_paths.CREDENTIALS}/password",
        "bucket_name": goal.bucket.name,
        "scope_name": goal.scope,
        "collection_name": goal.collection,
        "key_prefix": inputs.key_prefix,
        "ttl_seconds": parse_seconds(spec.cache.ttl),
        "refresh_ttl": spec.cache.refresh_ttl,
        "shard_size_bytes": inputs.sizing.shard_bytes,
        "checksum": "xxh3",
        "require_checksum": True,
        # LMCache's own port shows and takes more than others may see; an empty host is every address of the pod
        "metrics_host": "",
        "metrics_port": names.ADAPTER_METRICS_PORT,
        # pods load the model while the bucket is still being made
        "startup": "degraded",
    }
    tls = spec.couchbase.tls
    reference = (tls.ca_secret_ref or tls.ca_config_map_ref) if tls else None
    if reference is not None:
        params["tls_ca_file"] = f"{pod_paths.CERTIFICATES}/{reference.key}"
    if tls is not None and tls.insecure_skip_verify:
        params["tls_skip_verify"] = True
    return {
        "type": "plugin",
        "module_path": "couchbase_lm_cache.l2_adapter",
        "class_name": "CouchbaseL2Adapter",
        "adapter_params": params,
    }


def _environment(spec: LMCacheCouchbaseSpec, values: EngineValues) -> tuple[Part, ...]:
    ours = [*pod_paths.shared_environment(), *wheel_environment(spec, is_engine=False)]
    if values.vendor != CPU:
        # engine-driven transfer needs no GPU here; without this an image may ask for all of the node's
        ours.append({"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"})
    return pod_paths.merged_environment(ours, spec.cache.env)


def _resources(spec: LMCacheCouchbaseSpec, sizing: Sizing) -> Part:
    """Return the user's resources over the worked-out ones.

    The shared memory counts in the limit of whoever touches a page first, so it is in both containers'.
    """
    needed = sizing.l1_bytes + _OVERHEAD_BYTES
    given = spec.cache.resources or {}
    requests = {"cpu": _CPU_REQUEST, "memory": format_bytes(needed), **(given.get("requests") or {})}
    limits = {"memory": format_bytes(needed + sizing.shared_memory_bytes), **(given.get("limits") or {})}
    return {**given, "requests": requests, "limits": limits}
