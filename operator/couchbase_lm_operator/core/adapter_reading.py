"""What a pod's adapter tells on its metrics port, reduced to what a sizing can be held against. Pure.

The text comes from a pod and is not trusted: nothing of it but plain numbers within bounds is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Iterable

_OBJECT_BYTES = "couchbase_lm_cache_object_bytes"
_LOAD_COUNT = "couchbase_lm_cache_load_seconds_count"
_LOAD_SECONDS = "couchbase_lm_cache_load_seconds_sum"
_LOAD_BYTES = "couchbase_lm_cache_loaded_bytes_total"
SERIES = (_OBJECT_BYTES, _LOAD_COUNT, _LOAD_SECONDS, _LOAD_BYTES)
"""The series of couchbase-lm-cache that are read, and all that is asked for."""

_MAX_NUMBER = float(2**53)
_MAX_OBJECT_BYTES = 2**40
_MAX_GROUP = 255
_MAX_SERIES = 4096
_MAX_LINE_LENGTH = 2048


@dataclass(frozen=True)
class StoredObject:
    """Size of the objects of one group and rank; ``kv_rank`` is LMCache's, which holds the number of ranks."""

    object_group: int
    kv_rank: int
    size_bytes: int

    @property
    def rank_count(self) -> int:
        """Return how many ranks store (LMCache 0.5.6, ``ObjectKey.ComputeKVRank``: the topmost of four bytes)."""
        return self.kv_rank >> 24


@dataclass(frozen=True)
class AdapterReading:
    """What was stored and loaded since the pod's LMCache server started; loads are those that were whole."""

    objects: tuple[StoredObject, ...] = ()
    load_count: int = 0
    load_bytes: int = 0
    load_seconds: float = 0.0


class ReadingError(ValueError):
    """The text is none that an adapter writes."""


def parse_reading(text: str) -> AdapterReading:
    """Read a Prometheus exposition; other series in it are passed over.

    Raises:
        ReadingError: no adapter's series are in it, or one of them is malformed or out of bounds.
    """
    lines = [line for line in text.splitlines() if line.split("{", 1)[0] in SERIES]
    # also bounds the time that reading may take
    if not 0 < len(lines) <= _MAX_SERIES or max(map(len, lines)) > _MAX_LINE_LENGTH:
        raise ReadingError("no series of couchbase-lm-cache, too many, or too long ones")
    objects: list[StoredObject] = []
    sums = dict.fromkeys((_LOAD_COUNT, _LOAD_SECONDS, _LOAD_BYTES), 0.0)
    try:
        for name, labels, value in _samples(lines):
            if not 0 <= value <= _MAX_NUMBER:
                raise ReadingError(f"{name} is out of bounds")
            if name == _OBJECT_BYTES:
                objects.append(_stored_object(labels, value))
            else:
                sums[name] += value
    except (KeyError, ValueError, IndexError) as error:
        raise ReadingError("a series of couchbase-lm-cache is malformed") from error
    return AdapterReading(tuple(objects), int(sums[_LOAD_COUNT]), int(sums[_LOAD_BYTES]), sums[_LOAD_SECONDS])


def _samples(lines: Iterable[str]) -> Iterable[tuple[str, dict[str, str], float]]:
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            yield sample.name, sample.labels, float(sample.value)


def _stored_object(labels: dict[str, str], value: float) -> StoredObject:
    found = StoredObject(int(labels["object_group"]), int(labels["kv_rank"], 16), int(value))
    is_sane = 0 <= found.object_group <= _MAX_GROUP and 0 < found.kv_rank < 2**32 and found.rank_count
    if not is_sane or not 0 < found.size_bytes <= _MAX_OBJECT_BYTES:
        raise ReadingError("the size, group or rank of an object is out of bounds")
    return found
