"""From what a pass found to the status of the resource. Pure; the clock is an argument.

``Ready`` says that this generation is in effect: provisioned once and serving. Trouble of the cache after
that shows in ``CouchbaseReachable`` and ``CacheHealthy`` only, since the cache is optional for serving.
``Reconciling`` and ``Stalled`` are present only when true, as kstatus wants it. Blocks that a pass could
not work out keep what an earlier one said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from couchbase_lm_operator import names
from couchbase_lm_operator.api.conditions import Condition, ConditionStatus, ConditionType, find, merged
from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core import facts
from couchbase_lm_operator.core.couchbase import bucket_record
from couchbase_lm_operator.core.couchbase.provisioning import Stage
from couchbase_lm_operator.core.observed import ModelConfig
from couchbase_lm_operator.core.quantity import format_bytes
from couchbase_lm_operator.core.sizing import payoff_facts, sizing_verdict
from couchbase_lm_operator.core.verdict import Proceed, Refuse, Wait

if TYPE_CHECKING:
    from couchbase_lm_operator.core.couchbase_state import CouchbaseGoal
    from couchbase_lm_operator.core.progress import Progress

_TRUE, _FALSE, _UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN

_CACHE = {
    True: (_TRUE, Reason.CACHE_HEALTHY),
    False: (_FALSE, Reason.CACHE_UNREACHABLE),
    None: (_UNKNOWN, Reason.CACHE_NOT_PROBED),
}

# the conditions of the provisioning arm, in the order in which it works, with what they say when done
_STAGES = (
    (Stage.REACH, ConditionType.COUCHBASE_REACHABLE, Reason.COUCHBASE_REACHABLE, "Couchbase answers."),
    (Stage.BUCKET, ConditionType.BUCKET_READY, Reason.BUCKET_READY, "Bucket, scope and collection are there."),
    (
        Stage.CREDENTIALS,
        ConditionType.CREDENTIALS_READY,
        Reason.CREDENTIALS_READY,
        "The engines' user reaches its collection on every data node.",
    ),
)


def build_status(progress: Progress, now: str) -> dict[str, Any]:
    """Return the whole status; ``now`` is an RFC 3339 time, used only for conditions that change."""
    observed = progress.observed
    previous = observed.status
    blocks = {name: content for name, content in _blocks(progress, previous).items() if content}
    return {
        "observedGeneration": observed.generation,
        "conditions": merged(previous.get("conditions") or [], _conditions(progress), now),
        **blocks,
    }


def difference(previous: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON merge patch that turns one status into the other; empty when they are equal."""
    patch: dict[str, Any] = {}
    for name in [*previous, *(each for each in wanted if each not in previous)]:
        old, new = previous.get(name), wanted.get(name)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            patch[name] = difference(old, new)
        else:
            patch[name] = new
    return patch


def _conditions(progress: Progress) -> list[Condition]:
    generation = progress.observed.generation

    def condition(kind: ConditionType, status: ConditionStatus, reason: Reason, message: str) -> Condition:
        return Condition(kind, status, reason, message, generation)

    result = [condition(*each) for each in (*_summary(progress), _model(progress), *_couchbase(progress))]
    workload = progress.workload
    is_up = _TRUE if workload.is_available else _FALSE
    result.append(condition(ConditionType.WORKLOAD_AVAILABLE, is_up, workload.reason, workload.message))
    predicted = progress.prediction
    if predicted is not None:
        verdict = sizing_verdict.verdict(progress.observation, progress.observed.readings, predicted)
        result.append(condition(ConditionType.SIZING_VERIFIED, *verdict))
    if progress.is_suspended:
        message = "spec.suspend is true: nothing is changed until it is false."
        result.append(condition(ConditionType.SUSPENDED, _TRUE, Reason.SUSPENDED, message))
    if progress.pin is not None and progress.pin.pending:
        pending = progress.pin.pending
        message = f"This operator would render other pods: set spec.rollout.approve to {pending} to roll them out."
        result.append(condition(ConditionType.ROLLOUT_PENDING, _TRUE, Reason.ROLLOUT_PENDING, message))
    cache = progress.cache
    if cache is not None and _may_tell_cache(progress):
        result.append(condition(ConditionType.CACHE_HEALTHY, *_CACHE[cache.is_healthy], cache.detail))
    return result + _carried(progress, {each.type for each in result})


def _carried(progress: Progress, said: set[ConditionType]) -> list[Condition]:
    """Return the earlier findings that this pass could not look at again."""
    kept: tuple[ConditionType, ...] = (ConditionType.CACHE_HEALTHY,) if _may_tell_cache(progress) else ()
    if progress.pin is None:
        kept += (ConditionType.SIZING_VERIFIED,)
    if progress.provisioned is None:
        kept += (ConditionType.BELOW_WORKING_SET, *(each[1] for each in _STAGES))
    elif progress.provisioned.facts.size is None:
        kept += (ConditionType.BELOW_WORKING_SET,)
    previous = progress.observed.status.get("conditions") or []
    return [
        Condition(
            kind,
            ConditionStatus(old["status"]),
            str(old["reason"]),
            str(old["message"]),
            int(old.get("observedGeneration", 0)),
        )
        for kind in kept
        if kind not in said and (old := find(previous, kind)) is not None
    ]


def _may_tell_cache(progress: Progress) -> bool:
    """Say whether probes are about what this resource uses: not while something else is being provisioned."""
    return progress.goal is None or progress.is_provisioned


def _summary(progress: Progress) -> list[tuple[ConditionType, ConditionStatus, Reason, str]]:
    refusal = progress.refusal
    if progress.observed.is_deleting:
        message = "The resource is being deleted."
        return [(ConditionType.READY, _FALSE, Reason.DELETING, message), _reconciling(Reason.DELETING, message)]
    if progress.is_suspended:
        message = "Suspended: whether this generation is in effect is not known."
        return [(ConditionType.READY, _UNKNOWN, Reason.SUSPENDED, message)]
    if refusal is not None:
        return [
            (ConditionType.READY, _FALSE, refusal.reason, refusal.message),
            (ConditionType.STALLED, _TRUE, refusal.reason, refusal.message),
        ]
    reason, message = _what_is_missing(progress)
    if reason in {Reason.SERVING, Reason.WORKLOAD_SCALED_TO_ZERO}:
        return [(ConditionType.READY, _TRUE, reason, message)]
    return [(ConditionType.READY, _FALSE, reason, message), _reconciling(reason, message)]


def _reconciling(reason: Reason, message: str) -> tuple[ConditionType, ConditionStatus, Reason, str]:
    return ConditionType.RECONCILING, _TRUE, reason, message


def _what_is_missing(progress: Progress) -> tuple[Reason, str]:
    verdict, provisioned = progress.verdict, progress.provisioned
    if isinstance(verdict, Wait):
        return verdict.reason, verdict.message
    if not progress.is_provisioned:
        if provisioned is not None and isinstance(provisioned.verdict, Wait):
            return provisioned.verdict.reason, provisioned.verdict.message
        return Reason.PROGRESSING, "Couchbase is being provisioned."
    if not progress.workload.is_available:
        return progress.workload.reason, progress.workload.message
    if progress.workload.reason is Reason.WORKLOAD_SCALED_TO_ZERO:
        return Reason.WORKLOAD_SCALED_TO_ZERO, "Couchbase is provisioned; spec.replicas is 0, so nothing serves."
    return Reason.SERVING, "The engines serve and Couchbase is provisioned."


def _model(progress: Progress) -> tuple[ConditionType, ConditionStatus, Reason, str]:
    kind, plan, verdict = ConditionType.MODEL_RESOLVED, progress.plan, progress.verdict
    if plan is not None:
        return kind, _TRUE, Reason.MODEL_RESOLVED, f"The model is sized; evidence: {plan.sizing.evidence}."
    if isinstance(verdict, (Refuse, Wait)) and not isinstance(progress.observed.model_config, ModelConfig):
        return kind, _FALSE, verdict.reason, verdict.message
    if isinstance(verdict, Refuse) and verdict.reason.startswith("Model"):
        return kind, _FALSE, verdict.reason, verdict.message
    return kind, _UNKNOWN, Reason.PROGRESSING, "Not worked out: see Ready."


def _couchbase(progress: Progress) -> list[tuple[ConditionType, ConditionStatus, Reason, str]]:
    provisioned = progress.provisioned
    if provisioned is None:
        return []
    verdict = provisioned.verdict
    if provisioned.stage is Stage.CLAIM and not isinstance(verdict, Proceed):
        return [(ConditionType.BUCKET_READY, _FALSE, verdict.reason, verdict.message)]
    is_external = progress.goal is not None and progress.goal.provisioning == "External"
    result, is_done = [], True
    for stage, kind, reason, message in _STAGES:
        if stage is Stage.BUCKET and is_external:
            continue
        if stage is provisioned.stage and not isinstance(verdict, Proceed):
            result.append((kind, _FALSE, verdict.reason, verdict.message))
            is_done = False
        elif is_done:
            result.append((kind, _TRUE, reason, message))
        else:
            result.append((kind, _UNKNOWN, Reason.PROGRESSING, "Not looked at yet: an earlier step is not done."))
    size = provisioned.facts.size
    if size is not None and size.is_below_working_set:
        quota, needed = format_bytes(size.quota_per_node_bytes), format_bytes(size.needed_per_node_bytes)
        told = (
            f"The bucket has {quota} on each data node; spec.cache.workingSet needs {needed}: raise "
            "spec.couchbase.bucket.memoryQuota, or lower the working set."
        )
        result.append((ConditionType.BELOW_WORKING_SET, _TRUE, Reason.BELOW_WORKING_SET, told))
    return result


def _blocks(progress: Progress, previous: dict[str, Any]) -> dict[str, Any]:
    blocks = {name: previous.get(name) or {} for name in ("model", "capacity", "couchbase", "transfer")}
    blocks["model"] = facts.current_model(blocks["model"])
    speed = progress.observation.load_bytes_per_second if progress.observation else None
    pin, plan, provisioned = progress.pin, progress.plan, progress.provisioned
    if pin is not None:
        quota = {name: blocks["capacity"][name] for name in ("quota", "contextsInBucket") if name in blocks["capacity"]}
        blocks["model"], blocks["transfer"] = facts.current_model(pin.facts["model"]), pin.facts["transfer"]
        blocks["capacity"] = {**pin.facts["capacity"], **payoff_facts.capacity(pin.facts.get("payoff"), speed), **quota}
        if provisioned is not None and provisioned.facts.size is not None:
            contexts = facts.bucket_capacity(provisioned.facts.size, int(pin.facts["capacity"]["bytesPerContext"]))
            blocks["capacity"] |= contexts
    if progress.goal is not None:
        blocks["couchbase"] = _couchbase_block(progress, progress.goal, blocks["couchbase"])
    seen = sizing_verdict.to_status(progress.observation)
    blocks["observation"] = seen if pin is not None else previous.get("observation") or {}
    blocks["workload"] = _workload_block(progress, previous.get("workload") or {})
    blocks["warnings"] = _warnings(progress, speed) if plan is not None else previous.get("warnings") or []
    return blocks


def _warnings(progress: Progress, bytes_per_second: int | None) -> list[dict[str, str]]:
    """Return the plan's warnings; whether the cache pays off is told of the pods in effect, once they have loaded."""
    assert progress.plan is not None  # noqa: S101 - the caller asked before
    told = [each.to_dict() for each in progress.plan.warnings]
    others = [each for each in told if each["reason"] != Reason.NOT_WORTHWHILE]
    previous = progress.observed.status
    if progress.pin is not None and bytes_per_second is not None:
        slow = payoff_facts.warning(progress.pin.facts.get("payoff"), bytes_per_second)
        return [*others, *([slow.to_dict()] if slow else [])]
    if progress.pin is None and (previous.get("observation") or {}).get("loadBytesPerSecond"):
        # what was observed stays in status while nothing new is decided, and so does what follows from it
        kept = [each for each in previous.get("warnings") or [] if each["reason"] == Reason.NOT_WORTHWHILE]
        return [*others, *kept]
    return told


def _couchbase_block(progress: Progress, goal: CouchbaseGoal, previous: dict[str, Any]) -> dict[str, Any]:
    provisioned = progress.provisioned
    block = {
        "provisioning": goal.provisioning,
        "scope": goal.scope,
        "collection": goal.collection,
        "user": goal.user,
        "secretName": goal.secret_name,
        "keyPrefix": progress.pin.facts["keyPrefix"] if progress.pin else previous.get("keyPrefix"),
        "edition": previous.get("edition"),
        "serverVersion": previous.get("serverVersion"),
        "bucket": previous.get("bucket") or {"name": goal.bucket.name},
        "provisionedDigest": progress.goal_digest if progress.is_provisioned else previous.get("provisionedDigest"),
    }
    if provisioned is not None:
        block["edition"] = provisioned.facts.edition or block["edition"]
        block["serverVersion"] = provisioned.facts.server_version or block["serverVersion"]
        if provisioned.record is not None:
            block["bucket"] = bucket_record.to_status(provisioned.record)
    return facts.without_empty(block)


def _workload_block(progress: Progress, previous: dict[str, Any]) -> dict[str, Any]:
    workload, pin = progress.workload, progress.pin
    name = progress.observed.name
    selector = ",".join(f"{key}={value}" for key, value in sorted(names.selector_labels(name).items()))
    block = {
        "replicas": workload.replicas,
        "readyReplicas": workload.ready_replicas,
        "selector": selector,
        "url": previous.get("url") if progress.url is None else progress.url,
        "revision": pin.revision if pin else previous.get("revision"),
        "pendingRevision": pin.pending if pin else previous.get("pendingRevision"),
    }
    return facts.without_empty(block)
