"""Which Events tell of the changes between two statuses. Pure.

Only changes of a condition's status or reason and new warnings are told, so a steady resource has no Events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator.api.conditions import ConditionStatus, ConditionType, changed, is_true

if TYPE_CHECKING:
    from collections.abc import Mapping

# Ready tells what these two repeat for kstatus
_SILENT = frozenset({ConditionType.RECONCILING.value, ConditionType.STALLED.value})
_BAD_WHEN_FALSE = frozenset(
    {
        ConditionType.COUCHBASE_REACHABLE.value,
        ConditionType.CACHE_HEALTHY.value,
        ConditionType.SIZING_VERIFIED.value,
    }
)
_BAD_WHEN_TRUE = frozenset({ConditionType.BELOW_WORKING_SET.value})


@dataclass(frozen=True)
class Happening:
    """One Event: ``kind`` is Normal or Warning."""

    kind: str
    reason: str
    message: str


def happenings(previous: Mapping[str, Any], current: Mapping[str, Any]) -> list[Happening]:
    """Return what to tell; one entry per reason, as several conditions may share one."""
    conditions = current["conditions"]
    is_stalled = is_true(conditions, ConditionType.STALLED)
    told: dict[str, Happening] = {}
    for each in changed(previous.get("conditions") or [], conditions):
        name, status = each["type"], each["status"]
        if name in _SILENT or status == ConditionStatus.UNKNOWN.value:
            continue
        is_bad = (
            (name == ConditionType.READY.value and is_stalled)
            or (name in _BAD_WHEN_FALSE and status == ConditionStatus.FALSE.value)
            or (name in _BAD_WHEN_TRUE and status == ConditionStatus.TRUE.value)
        )
        told.setdefault(each["reason"], Happening("Warning" if is_bad else "Normal", each["reason"], each["message"]))
    known = previous.get("warnings") or []
    new = [each for each in current.get("warnings") or [] if each not in known]
    return [*told.values(), *(Happening("Warning", each["reason"], each["message"]) for each in new)]
