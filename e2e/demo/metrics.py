"""Counters of one pod: vLLM's over HTTP, LMCache's by exec, because they are served on loopback alone."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import httpx

from couchbase_lm_operator import names
from e2e.demo.kube import Kube

_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{[^}]*\})? ([-+.\deE]+|NaN)$", re.MULTILINE)
_READ_LMCACHE = (
    "import urllib.request as r;"
    f"print(r.urlopen('http://127.0.0.1:{names.LMCACHE_HTTP_PORT}/{{path}}',timeout=10).read().decode())"
)


@dataclass(frozen=True)
class PodCounters:
    """Totals since the pod's start, in tokens and chunks."""

    external_hit_tokens: float
    external_query_tokens: float
    l2_hit_tokens: float
    l2_stored_chunks: float

    def since(self, earlier: PodCounters) -> PodCounters:
        """Return the growth since ``earlier``."""
        return PodCounters(
            self.external_hit_tokens - earlier.external_hit_tokens,
            self.external_query_tokens - earlier.external_query_tokens,
            self.l2_hit_tokens - earlier.l2_hit_tokens,
            self.l2_stored_chunks - earlier.l2_stored_chunks,
        )


def read_counters(kube: Kube, namespace: str, pod: str, vllm_url: str) -> PodCounters:
    """Read both sources; a counter that was never used does not exist yet and counts as 0."""
    vllm = totals(httpx.get(f"{vllm_url}/metrics", timeout=30).raise_for_status().text)
    lmcache = totals(read_lmcache(kube, namespace, pod, "metrics"))
    return PodCounters(
        external_hit_tokens=vllm.get("vllm:external_prefix_cache_hits_total", 0.0),
        external_query_tokens=vllm.get("vllm:external_prefix_cache_queries_total", 0.0),
        l2_hit_tokens=lmcache.get("lmcache_mp_lookup_hit_l2_tokens_total", 0.0),
        l2_stored_chunks=_matching(lmcache, "l2_store_completed_objects"),
    )


def read_transport(kube: Kube, namespace: str, pod: str) -> str:
    """Return how the pod's adapter talks to Couchbase: ``direct`` or ``sdk``; empty while it does not."""
    status = json.loads(read_lmcache(kube, namespace, pod, "status"))
    (adapter,) = status["storage_manager"]["l2_adapters"]
    return adapter.get("transport") or ""


def read_lmcache(kube: Kube, namespace: str, pod: str, path: str) -> str:
    """Return what the pod's LMCache answers at ``path`` of its HTTP port, which only the pod itself reaches."""
    program = _READ_LMCACHE.format(path=path)
    return kube.exec(namespace, pod, names.CONTAINER_LMCACHE, "python3", "-ISc", program)


def totals(exposition: str) -> dict[str, float]:
    """Sum the samples of each metric over its labels (Prometheus text format)."""
    summed: dict[str, float] = {}
    for name, value in _SAMPLE.findall(exposition):
        summed[name] = summed.get(name, 0.0) + float(value)
    return summed


def _matching(sums: dict[str, float], part: str) -> float:
    return sum(value for name, value in sums.items() if part in name and name.endswith("_total"))
