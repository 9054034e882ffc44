"""The algebra of status conditions: set, remove, compare. Pure; the clock is an argument.

Conditions follow ``metav1.Condition``: ``lastTransitionTime`` moves only when ``status`` changes, so a
condition whose message alone changed keeps it. The order of first appearance is kept, so that an
unchanged status is also textually unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ConditionDict: TypeAlias = dict[str, Any]

_MAX_MESSAGE_LENGTH = 32768
_TIME = "lastTransitionTime"


class ConditionType(StrEnum):
    """Every condition type of the resource, in the order in which status lists them."""

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    SUSPENDED = "Suspended"
    MODEL_RESOLVED = "ModelResolved"
    COUCHBASE_REACHABLE = "CouchbaseReachable"
    BUCKET_READY = "BucketReady"
    BELOW_WORKING_SET = "BelowWorkingSet"
    CREDENTIALS_READY = "CredentialsReady"
    WORKLOAD_AVAILABLE = "WorkloadAvailable"
    ROLLOUT_PENDING = "RolloutPending"
    SIZING_VERIFIED = "SizingVerified"
    CACHE_HEALTHY = "CacheHealthy"


class ConditionStatus(StrEnum):
    """The three values of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True)
class Condition:
    """One condition as a pass wants it; ``reason`` is from ``api.reasons``."""

    type: ConditionType
    status: ConditionStatus
    reason: str
    message: str
    observed_generation: int

    def to_dict(self, transition_time: str) -> ConditionDict:
        """Return the API form."""
        return {
            "type": self.type.value,
            "status": self.status.value,
            "reason": str(self.reason),
            "message": self.message[:_MAX_MESSAGE_LENGTH],
            _TIME: transition_time,
            "observedGeneration": self.observed_generation,
        }


def merged(previous: Sequence[ConditionDict], wanted: Iterable[Condition], now: str) -> list[ConditionDict]:
    """Return ``wanted`` as API conditions; types that are not wanted any more are dropped.

    ``now`` is an RFC 3339 time; a condition whose status did not change keeps its old transition time.
    """
    before = {str(condition["type"]): condition for condition in previous}
    order = list(ConditionType)
    result = []
    for condition in sorted(wanted, key=lambda each: order.index(each.type)):
        old = before.get(condition.type.value)
        is_same_status = old is not None and old.get("status") == condition.status.value
        time = str(old[_TIME]) if old is not None and is_same_status and old.get(_TIME) else now
        result.append(condition.to_dict(time))
    return result


def find(conditions: Sequence[ConditionDict], condition_type: ConditionType) -> ConditionDict | None:
    """Return the condition of a type, or None."""
    return next((each for each in conditions if each.get("type") == condition_type.value), None)


def is_true(conditions: Sequence[ConditionDict], condition_type: ConditionType) -> bool:
    """Say whether a condition is present and True."""
    found = find(conditions, condition_type)
    return found is not None and found.get("status") == ConditionStatus.TRUE.value


def changed(previous: Sequence[ConditionDict], current: Sequence[ConditionDict]) -> list[ConditionDict]:
    """Return the conditions of ``current`` whose status or reason is new: what is worth an Event.

    A condition that was never there before counts only when it is not the harmless beginning (Unknown).
    """
    before = {str(each["type"]): (each.get("status"), each.get("reason")) for each in previous}
    result = []
    for each in current:
        old = before.get(str(each["type"]))
        if old == (each["status"], each["reason"]):
            continue
        if old is None and each["status"] == ConditionStatus.UNKNOWN.value:
            continue
        result.append(each)
    return result
