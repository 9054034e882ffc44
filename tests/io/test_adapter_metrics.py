"""A pod's metrics port: what the real adapter serves is understood, and a hostile pod gets and gives nothing."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from couchbase_lm_cache.metrics import AdapterMetrics as PluginMetrics
from couchbase_lm_cache.metrics_port import MetricsPort
from couchbase_lm_cache.observation import ObjectKind, ObjectLayout, Observation
from couchbase_lm_cache.settings import CouchbaseLMCacheConfig
from couchbase_lm_operator.core.adapter_reading import AdapterReading, StoredObject
from couchbase_lm_operator.core.couchbase.connection_string import Address
from couchbase_lm_operator.io.adapter_metrics import MAX_ANSWER_BYTES, AdapterMetrics
from couchbase_lm_operator.io.addresses import AddressGuard, guard_for
from tests.pod_metrics import LONE_RANK, PodMetrics, running_pod_metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

READER = AdapterMetrics(AddressGuard())


@pytest.fixture
def pod() -> Iterator[PodMetrics]:
    with running_pod_metrics() as running:
        running.tell((0, LONE_RANK, 4096))
        yield running


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_what_the_adapter_itself_serves() -> None:
    settings = CouchbaseLMCacheConfig.from_dict(
        {
            "connection_string": "couchbase://nowhere",
            "bucket_name": "b",
            "username": "u",
            "password": "p",
            # as the operator renders it
            "metrics_host": "",
            "metrics_port": _free_port(),
        },
        {},
    )
    seen = Observation()
    seen.saw(ObjectKind('odd "model"\n', 1, f"0x{LONE_RANK:08x}"), ObjectLayout(4096, ((2, 4),), ("torch.x",), "0a"))
    metrics, port = (
        PluginMetrics(
            settings, lambda: {"is_healthy": True, "connection_state": "ready", "transport": ""}, seen.objects
        ),
        MetricsPort(settings),
    )
    try:
        metrics.loaded(1000, 0.5)
        metrics.loaded(3000, 0.75)
        found = await READER.read("127.0.0.1", settings.metrics_port)
        assert found == AdapterReading((StoredObject(1, LONE_RANK, 4096),), 2, 4000, 1.25)
        if socket.has_dualstack_ipv6():
            assert await READER.read("::1", settings.metrics_port) == found
    finally:
        port.close()
        metrics.close()
    assert await READER.read("127.0.0.1", settings.metrics_port) is None


async def test_only_the_series_that_matter_are_asked_for(pod: PodMetrics) -> None:
    assert await READER.read("127.0.0.1", pod.port) == AdapterReading((StoredObject(0, LONE_RANK, 4096),))
    (path,) = pod.paths
    assert path.startswith("/metrics?name%5B%5D=couchbase_lm_cache_object_bytes&")


async def test_a_redirect_is_not_followed(pod: PodMetrics) -> None:
    with running_pod_metrics() as other:
        pod.status, pod.headers = 302, {"Location": f"http://127.0.0.1:{other.port}/metrics"}
        assert await READER.read("127.0.0.1", pod.port) is None
        assert other.paths == []


async def test_an_answer_that_is_too_long_too_slow_or_no_text(
    pod: PodMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    told = pod.body
    pod.body = told + b"# spam\n" * (MAX_ANSWER_BYTES // 7)
    assert await READER.read("127.0.0.1", pod.port) is None
    pod.body = told + b"\xff\xfe secret-of-the-pod"
    assert await READER.read("127.0.0.1", pod.port) is None
    pod.body, pod.headers, pod.delay_seconds = told, {}, 1.0
    assert await AdapterMetrics(AddressGuard(), deadline_seconds=0.2).read("127.0.0.1", pod.port) is None
    assert caplog.text.count("a pod does not tell its metrics") == 3
    assert "secret-of-the-pod" not in caplog.text


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "fe80::1", "fe80::1%eth0", "::1%/x", "0.0.0.0", "localhost", "10.0.0.1/../x", ""]
)
async def test_no_address_but_a_pods_own_is_asked(pod: PodMetrics, address: str) -> None:
    assert await READER.read(address, pod.port) is None
    assert pod.paths == []


async def test_the_api_server_is_never_asked(pod: PodMetrics) -> None:
    guarded = AdapterMetrics(await guard_for([Address("127.0.0.1", pod.port)]))
    assert await guarded.read("127.0.0.1", pod.port) is None
    assert pod.paths == []
