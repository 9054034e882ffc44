"""Ordered checks of the workload arm: may this resource be planned and rendered? Pure.

The first that does not let proceed decides. What only a person can fix is refused, what may come by
itself is waited for; both are judged anew in every pass, so that no restart is ever needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.engine import flags
from couchbase_lm_operator.core.engine.device_backend import refused_device_backend
from couchbase_lm_operator.core.model.model_reading import reading_verdict
from couchbase_lm_operator.core.observed import Missing, SecretValue, Unread
from couchbase_lm_operator.core.plan import make_plan
from couchbase_lm_operator.core.pod_template.pod_checks import refused_pod_template
from couchbase_lm_operator.core.reference_verdict import reference_verdict
from couchbase_lm_operator.core.refusal import RefusedError
from couchbase_lm_operator.core.spec_bounds import refused_bounds
from couchbase_lm_operator.core.verdict import Proceed, Refuse, Verdict

if TYPE_CHECKING:
    from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec
    from couchbase_lm_operator.core.defaults import Defaults
    from couchbase_lm_operator.core.observed import Observed


def check(spec: LMCacheCouchbaseSpec, observed: Observed, defaults: Defaults) -> Verdict:
    """Return whether ``core.plan.make_plan`` will give a plan for this resource, and if not, why."""
    refusal = check_spec(spec, defaults) or refused_user(spec, observed)
    if refusal is not None:
        return refusal
    for verdict in (_references(spec, observed), reading_verdict(observed.model_config)):
        if not isinstance(verdict, Proceed):
            return verdict
    try:
        make_plan(spec, observed, defaults)
    except RefusedError as error:
        return error.verdict
    return Proceed()


def check_spec(spec: LMCacheCouchbaseSpec, defaults: Defaults) -> Refuse | None:
    """Return why the spec cannot work, whatever the world looks like, or None."""
    engine, cache = spec.engine, spec.cache
    return (
        flags.refused_vllm_argument(engine.extra_args, "spec.engine.extraArgs")
        or flags.refused_lmcache_argument(cache.extra_args, "spec.cache.extraArgs")
        or flags.refused_env(engine.env, "spec.engine.env", is_sidecar=False)
        or flags.refused_env(cache.env, "spec.cache.env", is_sidecar=True)
        or flags.refused_adapter_param(cache.adapter_params or {}, "spec.cache.adapterParams")
        or refused_device_backend(spec)
        or refused_pod_template(spec.pod_template, allow_host_path=defaults.allow_host_path)
        or refused_bounds(spec)
    )


def refused_user(spec: LMCacheCouchbaseSpec, observed: Observed) -> Refuse | None:
    """Refuse the administrator's own name: Couchbase judges a login of that name as the administrator's only."""
    user, admin = spec.couchbase.user, observed.admin_credentials
    if user is None or not isinstance(admin, SecretValue) or user.name != admin.values.get("username"):
        return None
    return Refuse(
        Reason.USER_NAME_REFUSED,
        f"spec.couchbase.user.name {user.name!r} is the administrator of spec.couchbase.adminSecretRef: create the "
        "resource anew with another name, or without one.",
    )


def _references(spec: LMCacheCouchbaseSpec, observed: Observed) -> Verdict:
    """Wait for objects that pods mount; credentials that the operator makes itself are not among them."""
    wanted: list[object] = [*observed.referenced, observed.ca_pem]
    if spec.couchbase.resolved_provisioning == "External":
        wanted.append(observed.user_credentials)
    for found in wanted:
        if isinstance(found, Missing | Unread):
            return reference_verdict(found)
    return Proceed()
