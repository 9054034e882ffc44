"""Prometheus metrics of the adapters in this process, in the registry that LMCache serves at /metrics.

There is one set per process, labelled by bucket and collection: adapters that are made again go on
counting where the last one stopped. What an adapter *is* (healthy, connected, by which transport) is asked
for while metrics are read, and is gone once it is closed.
"""

from __future__ import annotations

import collections
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from prometheus_client import REGISTRY, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from couchbase_lm_cache.connection import ConnectionState
from couchbase_lm_cache.transport import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from couchbase_lm_cache.observation import ObjectKind, ObjectLayout
    from couchbase_lm_cache.settings import CouchbaseLMCacheConfig

OPERATIONS = ("read", "read_into", "write", "write_json", "exists", "probe", "age", "touch", "remove")
"""The calls of a transport, as they are named in the label ``operation``."""

_PREFIX = "couchbase_lm_cache"
_PLACE = ("bucket", "collection")
_LATENCY_BUCKETS_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0)
# Present from the start, because an alert on a series that does not exist yet never fires.
_PREPARED = (Outcome.OK, Outcome.TIMEOUT)

_BYTES_IN = Counter(f"{_PREFIX}_received_bytes", "Bytes of documents read from Couchbase", _PLACE)
_BYTES_OUT = Counter(f"{_PREFIX}_sent_bytes", "Bytes of documents written to Couchbase", _PLACE)
_OPERATIONS = Counter(
    f"{_PREFIX}_operations",
    "Documents asked for, by operation and by what became of them",
    (*_PLACE, "operation", "result"),
)
_LATENCY = Histogram(
    f"{_PREFIX}_call_seconds",
    "Duration of calls, each for a batch of documents",
    (*_PLACE, "operation"),
    buckets=_LATENCY_BUCKETS_SECONDS,
)
_RETRIES = Counter(
    f"{_PREFIX}_store_retries",
    "Steps of stores that Couchbase put off or did not answer; repeated until the store's deadline",
    _PLACE,
)
_LOADS = Histogram(
    f"{_PREFIX}_load_seconds",
    "Duration of loads all of whose objects arrived, each for one request of an engine",
    _PLACE,
    buckets=_LATENCY_BUCKETS_SECONDS,
)
_LOADED_BYTES = Counter(f"{_PREFIX}_loaded_bytes", "Bytes of objects that came with such loads", _PLACE)
_OBJECTS = Counter(f"{_PREFIX}_objects", "What became of objects (chunks), by event", (*_PLACE, "event"))


@dataclass(frozen=True)
class Place:
    """The labels that every metric has."""

    bucket: str
    collection: str

    @classmethod
    def of(cls, settings: CouchbaseLMCacheConfig) -> Place:
        """Name the collection with its scope."""
        return cls(settings.bucket_name, f"{settings.scope_name}.{settings.collection_name}")


class AdapterMetrics:
    """The metrics of one adapter.

    Args:
        settings: tell the place.
        status: returns the connection's last known state at once (see ``Connection.status``).
        objects: returns the objects that were seen (see ``Observation.objects``).
    """

    def __init__(
        self,
        settings: CouchbaseLMCacheConfig,
        status: Callable[[], Mapping[str, object]],
        objects: Callable[[], Mapping[ObjectKind, ObjectLayout]],
    ) -> None:
        self._place = Place.of(settings)
        self._labels = (self._place.bucket, self._place.collection)
        self._source = _Source(status, objects)
        self._bytes_in = _BYTES_IN.labels(*self._labels)
        self._bytes_out = _BYTES_OUT.labels(*self._labels)
        self._retries = _RETRIES.labels(*self._labels)
        self._loads = _LOADS.labels(*self._labels)
        self._loaded_bytes = _LOADED_BYTES.labels(*self._labels)
        for operation in OPERATIONS:
            for outcome in _PREPARED:
                _OPERATIONS.labels(*self._labels, operation, outcome.value)
        self._latency = {name: _LATENCY.labels(*self._labels, name) for name in OPERATIONS}
        _STATES.add(self._place, self._source)

    def called(self, operation: str, outcomes: Sequence[Outcome], took_seconds: float) -> None:
        """Record one call of a transport."""
        self._latency[operation].observe(took_seconds)
        for outcome, amount in collections.Counter(outcomes).items():
            _OPERATIONS.labels(*self._labels, operation, outcome.value).inc(amount)

    def received(self, size_bytes: int) -> None:
        """Count bytes that came from Couchbase."""
        self._bytes_in.inc(size_bytes)

    def sent(self, size_bytes: int) -> None:
        """Count bytes that Couchbase has taken."""
        self._bytes_out.inc(size_bytes)

    def loaded(self, size_bytes: int, took_seconds: float) -> None:
        """Record a load all of whose objects arrived."""
        self._loads.observe(took_seconds)
        self._loaded_bytes.inc(size_bytes)

    def count_event(self, name: str, amount: int) -> None:
        """Count what became of objects, by the names of the status report; bytes have metrics of their own."""
        if name == "store_retries":
            self._retries.inc(amount)
        elif not name.startswith("bytes_"):
            _OBJECTS.labels(*self._labels, name).inc(amount)

    def close(self) -> None:
        """Take this adapter's state out of the metrics; its counts stay. Idempotent."""
        _STATES.remove(self._place, self._source)


class _Source(NamedTuple):
    """Where to ask one adapter."""

    status: Callable[[], Mapping[str, object]]
    objects: Callable[[], Mapping[ObjectKind, ObjectLayout]]


class _States(Collector):
    """Asks the adapters for their state whenever metrics are read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._adapters: list[tuple[Place, _Source]] = []

    def add(self, place: Place, source: _Source) -> None:
        with self._lock:
            self._adapters.append((place, source))

    def remove(self, place: Place, source: _Source) -> None:
        with self._lock:
            self._adapters = [entry for entry in self._adapters if entry != (place, source)]

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return self._families().values()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        with self._lock:
            adapters = list(self._adapters)
        families = self._families()
        by_place: dict[Place, list[Mapping[str, object]]] = {}
        # Adapters of one place may see the same objects, and a series must not appear twice.
        sizes: dict[tuple[str, ...], int] = {}
        for place, source in adapters:
            by_place.setdefault(place, []).append(source.status())
            for kind, layout in source.objects().items():
                of_kind = (kind.model_name, str(kind.object_group), kind.kv_rank, layout.fingerprint)
                sizes[(place.bucket, place.collection, *of_kind)] = layout.size_bytes
        for size_labels, size_bytes in sizes.items():
            families["objects"].add_metric(size_labels, size_bytes)
        for place, found in by_place.items():
            labels = (place.bucket, place.collection)
            families["healthy"].add_metric(labels, all(one["is_healthy"] for one in found))
            states = collections.Counter(one["connection_state"] for one in found)
            for state in ConnectionState:
                families["state"].add_metric((*labels, state.value), states[state.value])
            ways = collections.Counter(
                (str(one["transport"]), str(one.get("transport_notice", ""))) for one in found if one["transport"]
            )
            for way, amount in ways.items():
                families["transport"].add_metric((*labels, *way), amount)
        yield from families.values()

    @staticmethod
    def _families() -> dict[str, Any]:
        return {
            "healthy": GaugeMetricFamily(
                f"{_PREFIX}_healthy", "1 while all adapters on the collection can read and write", labels=_PLACE
            ),
            "state": GaugeMetricFamily(
                f"{_PREFIX}_connection_state",
                "Number of adapters in each state; unavailable means that the breaker keeps requests away",
                labels=(*_PLACE, "state"),
            ),
            "transport": GaugeMetricFamily(
                f"{_PREFIX}_transport_info",
                "Number of adapters by transport, and why it is not the one wished for",
                labels=(*_PLACE, "transport", "notice"),
            ),
            "objects": GaugeMetricFamily(
                f"{_PREFIX}_object_bytes",
                "Size of the object (chunk) stored or loaded last, by the group and rank that it is of",
                labels=(*_PLACE, "model_name", "object_group", "kv_rank", "layout"),
            ),
        }


_STATES = _States()
REGISTRY.register(_STATES)
