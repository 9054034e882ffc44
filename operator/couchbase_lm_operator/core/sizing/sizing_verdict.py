"""Is what pods store what was predicted, and how fast do they load? Pure.

A sizing worked out from config.json alone can be silently wrong for a model that is other than its configuration
says. The adapters know the real sizes as soon as one chunk was stored, which every pod's startup probe brings about.
What they tell is kept in ``status.observation`` under the pod template it is of, once: a steady resource is not
written, and its pods are not asked again. Nothing of it changes a bucket.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from math import floor, log10
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator.api.conditions import ConditionStatus
from couchbase_lm_operator.api.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from couchbase_lm_operator.core.adapter_reading import StoredObject
    from couchbase_lm_operator.core.observed import PodReadings

LOADS_NEEDED = 20
"""Whole loads after which their speed is more telling than the assumed one."""
_MAX_BYTES_PER_SECOND = 10**15
_DIGITS = 2

_NOT_SEEN = "No pod of this template has stored or loaded a chunk in Couchbase yet, as far as the operator has seen."
_NOT_TOLD = (
    "No ready pod answers on its port metrics: let the operator reach it there (NetworkPolicy), so that it can compare "
    "the sizes of stored chunks with status.model."
)


@dataclass(frozen=True)
class Prediction:
    """Bytes of an object by object group, on the rank that holds most, and how many ranks store one."""

    object_bytes: tuple[int, ...]
    ranks: int


@dataclass(frozen=True)
class Observation:
    """What pods of the template ``revision`` really store, as in ``Prediction``, and their speed once it is known."""

    revision: str
    object_bytes: tuple[int, ...]
    ranks: int
    load_bytes_per_second: int | None = None


Verdict = tuple[ConditionStatus, Reason, str]


def prediction(facts: Mapping[str, Any]) -> Prediction | None:
    """Return what was predicted for a pod template; None for one that an older operator recorded."""
    kept = facts.get("prediction")
    return Prediction(tuple(kept["objectBytes"]), int(kept["ranks"])) if kept else None


def from_status(block: Mapping[str, Any] | None) -> Observation | None:
    """Return the recorded observation, if there is one."""
    if not block or not block.get("revision") or not block.get("objectBytes"):
        return None
    return Observation(
        str(block["revision"]),
        tuple(map(int, block["objectBytes"])),
        int(block.get("ranks", 1)),
        block.get("loadBytesPerSecond"),
    )


def to_status(observation: Observation | None) -> dict[str, Any]:
    """Return the status block; empty when there is nothing to record."""
    if observation is None:
        return {}
    block = {
        "revision": observation.revision,
        "objectBytes": list(observation.object_bytes),
        "ranks": observation.ranks,
        "loadBytesPerSecond": observation.load_bytes_per_second,
    }
    return {name: value for name, value in block.items() if value is not None}


def revision_to_read(status: Mapping[str, Any], *, is_available: bool) -> str:
    """Return the pod template whose pods are to be asked; "" when nothing is left to learn.

    Speed alone is no reason to ask pods of a workload that is in trouble.
    """
    revision = str((status.get("workload") or {}).get("revision", ""))
    known = from_status(status.get("observation"))
    if known is None or known.revision != revision:
        return revision
    return revision if is_available and known.load_bytes_per_second is None else ""


def observed(
    status: Mapping[str, Any], readings: PodReadings | None, revision: str, prediction: Prediction
) -> Observation | None:
    """Return what is known of the pods of template ``revision`` after this pass.

    Sizes that were seen once stay: only another template has others.
    """
    known = from_status(status.get("observation"))
    if known is not None and known.revision != revision:
        known = None
    if readings is None or readings.revision != revision:
        return known
    known = known or _sizes(readings, revision, prediction)
    if known is not None and known.load_bytes_per_second is None:
        known = replace(known, load_bytes_per_second=_speed(readings))
    return known


def verdict(observation: Observation | None, readings: PodReadings | None, prediction: Prediction) -> Verdict:
    """Return the condition ``SizingVerified`` of the pod template in effect."""
    if observation is None:
        if readings is not None and readings.asked and not readings.answers:
            return ConditionStatus.UNKNOWN, Reason.METRICS_UNREACHABLE, _NOT_TOLD
        return ConditionStatus.UNKNOWN, Reason.NOTHING_STORED, _NOT_SEEN
    found = _told(observation.object_bytes, observation.ranks)
    if (observation.object_bytes, observation.ranks) == (prediction.object_bytes, prediction.ranks):
        return ConditionStatus.TRUE, Reason.SIZING_VERIFIED, f"Pods store what was predicted: {found}."
    wanted = _told(prediction.object_bytes, prediction.ranks)
    told = (
        f"Pods store {found}, predicted were {wanted}: what status.model and status.capacity say is wrong by as much. "
        "An existing bucket keeps its memory. Set spec.cache.l1Size and spec.couchbase.bucket.memoryQuota as the real "
        "size needs, and correct spec.model.override if it is set."
    )
    return ConditionStatus.FALSE, Reason.SIZING_DIFFERS, told


def _told(object_bytes: Sequence[int], ranks: int) -> str:
    sizes = " and ".join(str(size) for size in object_bytes)
    return f"objects of {sizes} bytes for each chunk on {ranks} rank{'' if ranks == 1 else 's'}"


def _sizes(readings: PodReadings, revision: str, prediction: Prediction) -> Observation | None:
    """Return the sizes, or None while a rank or a group may just not have come yet.

    All groups of a rank are stored together, so a group is judged once all ranks were seen.
    """
    found = [each for answer in readings.answers for each in answer.objects]
    ranks = max((each.rank_count for each in found), default=0)
    groups: dict[int, set[int]] = defaultdict(set)
    for each in found:
        groups[each.kv_rank].add(each.object_group)
    if not ranks or len(groups) < ranks or any(max(known) >= len(known) for known in groups.values()):
        return None
    sizes = _largest(found)
    if len(sizes) < len(prediction.object_bytes) and sizes == prediction.object_bytes[: len(sizes)]:
        return None
    return Observation(revision, sizes, ranks)


def _largest(found: Sequence[StoredObject]) -> tuple[int, ...]:
    """Return the bytes of the rank that holds most, by object group."""
    largest: dict[int, int] = defaultdict(int)
    for each in found:
        largest[each.object_group] = max(largest[each.object_group], each.size_bytes)
    return tuple(size for _, size in sorted(largest.items()))


def _speed(readings: PodReadings) -> int | None:
    """Return bytes per second over all whole loads, with two significant digits; None before there are enough."""
    loads = sum(answer.load_count for answer in readings.answers)
    size_bytes = sum(answer.load_bytes for answer in readings.answers)
    seconds = sum(answer.load_seconds for answer in readings.answers)
    if loads < LOADS_NEEDED or not size_bytes or seconds <= 0:
        return None
    speed = size_bytes / seconds
    if not 1 <= speed <= _MAX_BYTES_PER_SECOND:
        return None  # no network is that fast or that slow: the pod's numbers are broken
    return int(round(speed, _DIGITS - 1 - floor(log10(speed)))) or None
