"""Every number, name, flag and image of one resource, in one frozen plan. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator.core.couchbase.couchbase_goal import couchbase_goal, wished_contexts
from couchbase_lm_operator.core.engine import cpu_cache_space, engine_values
from couchbase_lm_operator.core.fingerprint import key_prefix
from couchbase_lm_operator.core.model import model_shape
from couchbase_lm_operator.core.model.model_reading import config_of
from couchbase_lm_operator.core.model.prefill_cost import prefill_cost
from couchbase_lm_operator.core.plan_choices import plan_choices
from couchbase_lm_operator.core.plan_warnings import plan_warnings
from couchbase_lm_operator.core.pod_template.engine_container import engine_flags
from couchbase_lm_operator.core.pod_template.mounted_content import mounted_content
from couchbase_lm_operator.core.pod_template.pod import grace_times, pod
from couchbase_lm_operator.core.pod_template.pod_fields import pod_fields
from couchbase_lm_operator.core.pod_template.pod_inputs import PodInputs
from couchbase_lm_operator.core.pod_template.workload import Workload, frame
from couchbase_lm_operator.core.quantity import parse_bytes
from couchbase_lm_operator.core.sizing import sizing
from couchbase_lm_operator.core.sizing.layout_fingerprint import layout_fingerprint
from couchbase_lm_operator.core.sizing.payoff import assumed_rates, context_payoff
from couchbase_lm_operator.core.sizing.transfer import choose_transfer

if TYPE_CHECKING:
    from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec
    from couchbase_lm_operator.core.choice import Choice
    from couchbase_lm_operator.core.couchbase_state import CouchbaseGoal
    from couchbase_lm_operator.core.defaults import Defaults
    from couchbase_lm_operator.core.engine.engine_values import EngineValues
    from couchbase_lm_operator.core.model.model_shape import ModelShape
    from couchbase_lm_operator.core.observed import ModelConfig, Observed
    from couchbase_lm_operator.core.plan_warning import PlanWarning
    from couchbase_lm_operator.core.sizing.payoff import Payoff
    from couchbase_lm_operator.core.sizing.sizing import Sizing
    from couchbase_lm_operator.core.sizing.transfer import Transfer

# Flags that change nothing in the bytes of a rank: the rank is in the key, and ending is not computing.
_NOT_IN_FINGERPRINT = ("--tensor-parallel-size", "--shutdown-timeout")


@dataclass(frozen=True)
class Plan:
    """What one resource becomes.

    ``payoff`` is predicted. ``couchbase`` is the goal of the provisioning arm, ``workload`` everything that
    the templates show, ``pod_fields`` what users wrote that shapes the pods. ``warnings`` tell what works
    but is probably not meant.
    """

    name: str
    namespace: str
    generation: int
    values: EngineValues
    shape: ModelShape
    sizing: Sizing
    payoff: Payoff
    couchbase: CouchbaseGoal
    workload: Workload
    key_prefix: str
    config_digest: str
    transfer_mode: str
    transfer_reason: str
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
    asked = engine_values.resolve(spec, shape, config, defaults)
    transfer = choose_transfer(spec, shape, asked.layout)
    values = replace(asked, layout=transfer.engine)
    sized = sizing.size(shape, _sizing_inputs(spec, values, transfer, defaults))
    rates = assumed_rates(values.layout.platform)
    payoff = context_payoff(sized, prefill_cost(config.content, shape), values.gpu_count, rates)
    goal = couchbase_goal(spec, observed, sized.working_set_bytes)
    layout = layout_fingerprint(shape, values.layout, sized.chunk_size_tokens, defaults.engine_versions)
    content = {"layout": layout, "transfer": transfer.mode}
    content |= mounted_content(spec, values.revision, observed.namespace_uid)
    prefix = spec.cache.key_prefix or _key_prefix(spec, values, sized, config, content)
    inputs = PodInputs(spec, observed.name, values, sized, goal, prefix, transfer, defaults)
    return Plan(
        name=observed.name,
        namespace=observed.namespace,
        generation=observed.generation,
        values=values,
        shape=shape,
        sizing=sized,
        payoff=payoff,
        couchbase=goal,
        workload=Workload(frame(spec, observed.namespace, observed.name), pod(inputs)),
        key_prefix=prefix,
        config_digest=config.digest,
        transfer_mode=transfer.mode,
        transfer_reason=transfer.reason,
        pod_fields=pod_fields(spec, config.digest),
        choices=(*values.choices, *plan_choices(spec, sized, goal, prefix, transfer)),
        warnings=plan_warnings(spec, values, sized, payoff),
    )


def _shape(spec: LMCacheCouchbaseSpec, config: ModelConfig) -> ModelShape:
    override = spec.model.override
    if override is not None:
        return model_shape.overridden_shape(config.content, override.kv_bytes_per_token, config.source)
    return model_shape.read_shape(config.content, config.source)


def _sizing_inputs(
    spec: LMCacheCouchbaseSpec, values: EngineValues, transfer: Transfer, defaults: Defaults
) -> sizing.SizingInputs:
    cache, wish = spec.cache, spec.cache.working_set
    context = wish.tokens_per_context if wish else None
    return sizing.SizingInputs(
        engine=values.layout,
        is_engine_driven=transfer.is_engine_driven,
        handed_over_bytes=0 if transfer.is_engine_driven else cpu_cache_space.cpu_cache_bytes(spec),
        max_context_tokens=values.max_model_len,
        context_tokens=min(context, values.max_model_len) if context else None,
        contexts=wished_contexts(spec),
        chunk_tokens=cache.chunk_size,
        shard_bytes=parse_bytes(cache.shard_size) if cache.shard_size else None,
        l1_bytes=parse_bytes(cache.l1_size) if cache.l1_size else None,
        max_l1_bytes=defaults.max_l1_bytes,
    )


def _key_prefix(
    spec: LMCacheCouchbaseSpec, values: EngineValues, sized: Sizing, config: ModelConfig, content: dict[str, Any]
) -> str:
    """Return the start of every key: what shapes the bytes, and all that could change them in unknown ways.

    ``content`` says what is in the objects: the fingerprint of their layout; the transfer, because LMCache describes
    an object with other shapes in each, and the adapter takes what was stored with other shapes for a miss; and what
    pods mount, which can be the weights.
    """
    shutdown_seconds = grace_times(spec.termination_grace_period).shutdown_seconds
    flags = engine_flags(spec, values, sized.layout, shutdown_seconds)
    # absent where a resource says nothing, as in prefixes that are in use
    seldom = {
        "lmcacheEnv": spec.cache.env,
        # an image may have several, each with a vLLM of its own
        **spec.engine.model_dump(include={"python"}, exclude_defaults=True),
    }
    return key_prefix(
        {
            **content,
            "model": config.revision or config.digest,
            "flags": {flag: value for flag, value in flags.items() if flag not in _NOT_IN_FINGERPRINT},
            "extraArgs": spec.engine.extra_args,
            "env": [spec.engine.env, spec.engine.env_from],
            "image": values.image,
            "lmcacheArgs": spec.cache.extra_args,
            **{name: value for name, value in seldom.items() if value},
        }
    )
