"""All Prometheus metrics of the operator, in a registry of their own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry()

PASSES = Counter("lmcb_passes_total", "Passes over a resource, by how they ended.", ["outcome"], registry=REGISTRY)
PASS_SECONDS = Histogram(
    "lmcb_pass_duration_seconds",
    "Duration of a pass over a resource.",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
    registry=REGISTRY,
)
WRITES = Counter(
    "lmcb_cluster_writes_total",
    "Writes to the Kubernetes API server, by kind and verb.",
    ["kind", "verb"],
    registry=REGISTRY,
)
COUCHBASE_STEPS = Counter(
    "lmcb_couchbase_steps_total",
    "Writes to Couchbase, by step and how they ended.",
    ["step", "outcome"],
    registry=REGISTRY,
)
QUEUE_DEPTH = Gauge("lmcb_queue_depth", "Resources that wait for a worker.", registry=REGISTRY)
QUEUE_AGE_SECONDS = Gauge("lmcb_queue_oldest_age_seconds", "Age of the oldest wait or running pass.", registry=REGISTRY)
RESOURCES = Gauge("lmcb_resources", "Resources that the operator looks after.", registry=REGISTRY)
WATCH_RESTARTS = Counter(
    "lmcb_watch_restarts_total", "Watches that broke and were started again.", ["kind"], registry=REGISTRY
)
CACHE_HEALTHY = Gauge(
    "lmcb_cache_healthy",
    "1 when the engines' user reaches its collection, 0 when not; absent while that is not known.",
    ["namespace", "name"],
    registry=REGISTRY,
)
