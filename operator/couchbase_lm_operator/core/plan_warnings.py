"""What works but is probably not meant: told by ``lmcb plan``, in ``status.warnings`` and as an Event. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.plan_warning import PlanWarning
from couchbase_lm_operator.core.pod_template.mounted_content import (
    is_commit,
    is_digest,
    unfixed_mounts,
    unfixed_weights,
)
from couchbase_lm_operator.core.pod_template.pod_fields import reads_config_map
from couchbase_lm_operator.core.sizing import payoff_facts

if TYPE_CHECKING:
    from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec
    from couchbase_lm_operator.core.engine.engine_values import EngineValues
    from couchbase_lm_operator.core.sizing.payoff import Payoff
    from couchbase_lm_operator.core.sizing.sizing import Sizing


def plan_warnings(
    spec: LMCacheCouchbaseSpec, values: EngineValues, sized: Sizing, payoff: Payoff
) -> tuple[PlanWarning, ...]:
    """Return the warnings of a plan, at most one for each reason."""
    tls = spec.couchbase.tls
    is_pinned = values.is_path or is_commit(values.revision)
    is_fingerprint = spec.cache.key_prefix is None
    unfixed = unfixed_weights(spec)
    mounts = unfixed_mounts(spec)
    image = spec.engine.image
    found = (
        (
            not is_fingerprint,
            Reason.KEY_PREFIX_OVERRIDDEN,
            (
                "spec.cache.keyPrefix replaces the fingerprint: never use the same prefix for other weights, engines "
                "or versions."
            ),
        ),
        (
            tls is not None and tls.insecure_skip_verify,
            Reason.TLS_NOT_VERIFIED,
            "spec.couchbase.tls.insecureSkipVerify: anybody can pose as the cluster.",
        ),
        (
            reads_config_map(spec) and not is_pinned,
            Reason.WEIGHTS_NOT_PINNED,
            (
                "spec.model.revision is no commit, and with config.json from a ConfigMap nobody resolves it: when the "
                "weights behind it change, engines read each other's chunks as their own. Set a commit."
            ),
        ),
        (
            unfixed is not None and is_fingerprint,
            Reason.WEIGHTS_NOT_PINNED,
            (
                f"spec.model.id leads into {unfixed}. When other weights come to lie there, engines read chunks of the "
                "old ones as theirs: give each version of the weights a path of its own, or write a version into a "
                "variable of spec.engine.env and raise it with each edit, which rolls the pods to other keys."
            ),
        ),
        (
            bool(mounts) and is_fingerprint,
            Reason.MOUNT_NOT_PINNED,
            (
                f"spec.podTemplate.volumes ({', '.join(mounts)}): the fingerprint has their names, and what lies there "
                "can change behind them. When it is code or a setting that shapes the KV cache, engines read each "
                "other's chunks as their own: give each version a name of its own, or write a version into a variable "
                "of spec.engine.env and raise it with each edit."
            ),
        ),
        (
            image is not None and not is_digest(image) and is_fingerprint,
            Reason.IMAGE_NOT_PINNED,
            (
                "spec.engine.image has no digest. When other versions come under that name, engines read each "
                "other's chunks as their own: name the image with its digest (@sha256:…), or never use a tag twice."
            ),
        ),
        (
            bool(_by_reference(spec)) and is_fingerprint,
            Reason.ENV_NOT_IN_FINGERPRINT,
            (
                f"{' and '.join(_by_reference(spec))}: values that come from other objects are not in the fingerprint. "
                "When one that changes the KV cache is edited there, engines read each other's chunks as their own: "
                "write such values into spec.engine.env, or set another spec.cache.keyPrefix with each edit."
            ),
        ),
        (
            sized.longest_cacheable_tokens < sized.max_context_tokens,
            Reason.L1_TOO_SMALL,
            (
                f"Contexts beyond {sized.longest_cacheable_tokens} tokens are recomputed: spec.cache.l1Size, or the "
                "operator's limit of it, is too small."
            ),
        ),
        (
            sized.chunks_per_context == 0,
            Reason.NEVER_CACHED,
            f"Contexts of {sized.context_tokens} tokens fill no chunk of {sized.chunk_size_tokens}: never cached.",
        ),
        (bool(sized.warnings), Reason.SIZING_REMARK, " ".join(sized.warnings)),
    )
    told = tuple(PlanWarning(reason, text) for is_true, reason, text in found if is_true)
    slow = payoff_facts.warning(payoff_facts.to_record(payoff), None)
    return (*told, slow) if slow else told


def _by_reference(spec: LMCacheCouchbaseSpec) -> list[str]:
    """Return the fields that take values from ConfigMaps, or whole Secrets.

    A single key of a Secret is a token or a password, and no setting of the engine.
    """
    engine = spec.engine
    names = [str(each["name"]) for each in engine.env if "configMapKeyRef" in (each.get("valueFrom") or {})]
    single = [f"spec.engine.env ({', '.join(names)})"] if names else []
    return [*(["spec.engine.envFrom"] if engine.env_from else []), *single]
