"""Every number, name, flag and image of one resource, in one frozen plan. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator import names
from couchbase_lm_operator.core import engine_values, model_shape, sizing
from couchbase_lm_operator.core.choice import Choice
from couchbase_lm_operator.core.couchbase_goal import couchbase_goal
from couchbase_lm_operator.core.engine_container import engine_arguments
from couchbase_lm_operator.core.fingerprint import key_prefix
from couchbase_lm_operator.core.kv_layout import EngineLayout
from couchbase_lm_operator.core.model_reading import config_of
from couchbase_lm_operator.core.plan_warnings import plan_warnings
from couchbase_lm_operator.core.pod import grace_times, pod
from couchbase_lm_operator.core.pod_fields import pod_fields
from couchbase_lm_operator.core.pod_inputs import PodInputs
from couchbase_lm_operator.core.quantity import format_bytes, parse_bytes, parse_seconds
from couchbase_lm_operator.core.workload import Workload

if TYPE_CHECKING:
    from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec
    from couchbase_lm_operator.core.couchbase_state import CouchbaseGoal
    from couchbase_lm_operator.core.defaults import Defaults
    from couchbase_lm_operator.core.engine_values import EngineValues
    from couchbase_lm_operator.core.model_shape import ModelShape
    from couchbase_lm_operator.core.observed import ModelConfig, Observed
    from couchbase_lm_operator.core.plan_warnings import PlanWarning
    from couchbase_lm_operator.core.sizing import Sizing

_TRANSFER_MODE = "EngineDriven"
_TRANSFER_REASON = "vLLM copies blocks through shared memory: the LMCache server needs no access to the GPU."
# Flags that change nothing in the bytes of a rank: the rank is in the key, and ending is not computing.
_NOT_IN_FINGERPRINT = ("--tensor-parallel-size", "--shutdown-timeout")


@dataclass(frozen=True)
class Plan:
    """What one resource becomes.

    ``couchbase`` is the goal of the provisioning arm, ``workload`` everything that the templates show,
    ``pod_fields`` what users wrote that shapes the pods. ``warnings`` tell what works but is probably
    not meant.
    """

    name: str
    namespace: str
    generation: int
    values: EngineValues
    shape: ModelShape
    sizing: Sizing
    couchbase: CouchbaseGoal
    workload: Workload
    key_prefix: str
    config_digest: str
    transfer_mode: str
    transfer_reason: str
    url: str
    pod_fields: dict[str, Any]
    choices: tuple[Choice, ...]
    warnings: tuple[PlanWarning, ...]


def make_plan(spec: LMCacheCouchbaseSpec, observed: Observed, defaults: Defaults) -> Plan:
    """Return the plan of one resource.

    ``core.checks.check`` says beforehand whether there is one.

    Raises:
        RefusedError: the spec and the model do not go together; the verdict in it names the field.
    """
    config = config_of(observed.model_config)
    shape = _shape(spec, config)
    values = engine_values.resolve(spec, shape, config.revision, defaults)
    sized = sizing.size(shape, _sizing_inputs(spec, values, defaults))
    goal = couchbase_goal(spec, observed, sized.working_set_bytes)
    prefix = spec.cache.key_prefix or _key_prefix(spec, values, sized, config, defaults)
    return Plan(
        name=observed.name,
        namespace=observed.namespace,
        generation=observed.generation,
        values=values,
        shape=shape,
        sizing=sized,
        couchbase=goal,
        workload=Workload(
            name=observed.name,
            namespace=observed.namespace,
            labels=names.child_labels(observed.name),
            selector=names.selector_labels(observed.name),
            replicas=spec.replicas,
            max_surge=spec.rollout.max_surge,
            max_unavailable=spec.rollout.max_unavailable,
            progress_deadline_seconds=2 * parse_seconds(spec.engine.startup_timeout),
            pod=pod(PodInputs(spec, observed.name, values, sized, goal, prefix, defaults)),
            service_type=spec.service.type,
            service_port=spec.service.port,
            service_annotations=dict(spec.service.annotations),
        ),
        key_prefix=prefix,
        config_digest=config.digest,
        transfer_mode=_TRANSFER_MODE,
        transfer_reason=_TRANSFER_REASON,
        url=f"http://{observed.name}.{observed.namespace}.svc:{spec.service.port}/v1",
        pod_fields=pod_fields(spec, config.digest),
        choices=(*values.choices, *_choices(spec, sized, goal, prefix)),
        warnings=plan_warnings(spec, values, sized),
    )


def _shape(spec: LMCacheCouchbaseSpec, config: ModelConfig) -> ModelShape:
    override = spec.model.override
    if override is not None:
        return model_shape.overridden_shape(config.content, override.kv_bytes_per_token, config.source)
    return model_shape.read_shape(config.content, config.source)


def _sizing_inputs(spec: LMCacheCouchbaseSpec, values: EngineValues, defaults: Defaults) -> sizing.SizingInputs:
    cache, wish = spec.cache, spec.cache.working_set
    context = wish.tokens_per_context if wish else None
    return sizing.SizingInputs(
        engine=EngineLayout(
            platform="cpu" if values.vendor == engine_values.CPU else "cuda",
            tensor_parallel_size=values.tensor_parallel_size,
            pipeline_parallel_size=values.pipeline_parallel_size,
            kv_cache_dtype=values.kv_cache_dtype,
            dtype=values.dtype,
            block_size=values.block_tokens,
            attention_backend=values.attention_backend,
            separate_object_groups=False,
        ),
        max_context_tokens=values.max_model_len,
        context_tokens=min(context, values.max_model_len) if context else None,
        contexts=wish.contexts if wish else 100,
        chunk_tokens=cache.chunk_size,
        shard_bytes=parse_bytes(cache.shard_size) if cache.shard_size else None,
        l1_bytes=parse_bytes(cache.l1_size) if cache.l1_size else None,
        max_l1_bytes=defaults.max_l1_bytes,
    )


def _key_prefix(
    spec: LMCacheCouchbaseSpec, values: EngineValues, sized: Sizing, config: ModelConfig, defaults: Defaults
) -> str:
    arguments = engine_arguments(spec, values, grace_times(spec.termination_grace_period).shutdown_seconds)
    flags = dict(zip(arguments[2::2], arguments[3::2], strict=True))
    return key_prefix(
        {
            "model": config.revision or config.digest,
            "flags": {flag: value for flag, value in flags.items() if flag not in _NOT_IN_FINGERPRINT},
            "extraArgs": spec.engine.extra_args,
            "env": [spec.engine.env, spec.engine.env_from],
            "image": values.image,
            "versions": [defaults.vllm_version, defaults.lmcache_version],
            "chunkTokens": sized.chunk_size_tokens,
            "lmcacheArgs": spec.cache.extra_args,
            "objectGroups": "single",
        }
    )


def _choices(spec: LMCacheCouchbaseSpec, sized: Sizing, goal: CouchbaseGoal, prefix: str) -> tuple[Choice, ...]:
    couchbase, cache = spec.couchbase, spec.cache
    is_capped = sized.l1_bytes < sized.l1_wanted_bytes
    l1_reason = (
        f"the operator's limit; {format_bytes(sized.l1_wanted_bytes)} would hold the longest context"
        if is_capped
        else f"holds the longest context of {sized.max_context_tokens} tokens beside what is never evicted"
    )
    entries = (
        (couchbase.provisioning, "couchbase.provisioning", goal.provisioning, "from the Secrets that are given"),
        (couchbase.bucket.name, "couchbase.bucket.name", goal.bucket.name, "from the cluster's id and the name"),
        (couchbase.scope, "couchbase.scope", goal.scope, "the namespace"),
        (
            couchbase.collection,
            "couchbase.collection",
            goal.collection,
            "cache.shareGroup" if cache.share_group else "the name",
        ),
        (couchbase.user, "couchbase.user.name", goal.user, "one user per resource"),
        (
            cache.chunk_size,
            "cache.chunkSize",
            str(sized.chunk_size_tokens),
            sized.chunk_reason,
        ),
        (cache.shard_size, "cache.shardSize", format_bytes(sized.shard_bytes), "fastest to read"),
        (cache.l1_size, "cache.l1Size", format_bytes(sized.l1_bytes), l1_reason),
        (cache.key_prefix, "cache.keyPrefix", prefix, "fingerprint of what changes bytes but not keys"),
        (cache.transfer, "cache.transfer", _TRANSFER_MODE, "works on every device"),
    )
    is_external = goal.provisioning == "External"
    return tuple(
        Choice(field, value, reason)
        for given, field, value, reason in entries
        # an External user is the one of its Secret
        if given is None and not (is_external and field == "couchbase.user.name")
    )
