"""Metrics as a monitoring system sees them: scraped from a port, next to LMCache's own."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request

import pytest
from conftest import BUCKET, SCOPE, OpenAdapter, Place
from lmcache_parts import KIB, Driver, L1Memory, keys
from observing import wait_until
from prometheus_client import REGISTRY, CollectorRegistry, Counter, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from couchbase_lm_cache.errors import SettingsError


def labels(place: Place, **more: str) -> dict[str, str]:
    return {"bucket": BUCKET, "collection": f"{SCOPE}.{place.collection}", **more}


def value(name: str, place: Place, **more: str) -> float | None:
    return REGISTRY.get_sample_value(f"couchbase_lm_cache_{name}", labels(place, **more))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def test_bytes_operations_and_latency_of_a_store_and_a_load(place: Place, driver: Driver, l1: L1Memory) -> None:
    size = 100 * KIB
    driver.store(keys(3), l1.filled(size, size, size))
    assert driver.load(keys(4), l1.take(size, size, size, size)) == [True, True, True, False]
    sent, received = value("sent_bytes_total", place), value("received_bytes_total", place)
    assert sent is not None
    assert 3 * size < sent < 3 * size + 2 * KIB
    assert received is not None
    assert 3 * size < received < 3 * size + 2 * KIB
    assert value("operations_total", place, operation="write", result="ok") == 3
    assert value("operations_total", place, operation="read_into", result="ok") == 3
    # Three manifests before the store, one of a chunk that was never stored.
    assert value("operations_total", place, operation="read", result="missing") == 4
    assert value("operations_total", place, operation="write", result="timeout") == 0
    assert value("call_seconds_count", place, operation="read_into") == 1  # small objects share a call
    assert value("objects_total", place, event="objects_loaded") == 3


@pytest.mark.usefixtures("driver")
def test_state_and_transport(place: Place) -> None:
    assert value("healthy", place) == 1
    assert value("connection_state", place, state="ready") == 1
    assert value("connection_state", place, state="unavailable") == 0
    assert value("transport_info", place, transport=place.transport, notice="") == 1


@pytest.mark.usefixtures("eager_probes", "driver")
def test_an_outage_shows_and_passes(place: Place) -> None:
    place.emulator.faults.drop = -1
    wait_until(lambda: value("connection_state", place, state="unavailable") == 1, "the outage")
    assert value("healthy", place) == 0
    place.emulator.faults.clear()
    wait_until(lambda: value("healthy", place) == 1, "the recovery")


def test_writes_that_are_put_off_count_as_retries(place: Place, open_adapter: OpenAdapter, l1: L1Memory) -> None:
    driver = open_adapter(kv_timeout_seconds=1.0)
    assert value("store_retries_total", place) == 0
    place.emulator.faults.tmpfail = -1
    task_id = driver.adapter.submit_store_task(keys(1), l1.filled(KIB))
    wait_until(lambda: (value("store_retries_total", place) or 0) >= 2, "the retry")
    place.emulator.faults.clear()
    assert driver.stored(task_id) >= 0


def test_adapters_of_one_collection_share_their_metrics_and_leave_none_of_their_state(
    place: Place, open_adapter: OpenAdapter, l1: L1Memory
) -> None:
    one, other = open_adapter(), open_adapter()
    assert value("connection_state", place, state="ready") == 2
    one.store(keys(1), l1.filled(KIB))
    one.adapter.close()
    assert value("connection_state", place, state="ready") == 1
    other.adapter.close()
    assert value("healthy", place) is None
    again = open_adapter()
    again.load(keys(1), l1.take(KIB))
    assert value("operations_total", place, operation="write", result="ok") == 1
    assert value("operations_total", place, operation="read_into", result="ok") == 1


def test_the_port_serves_metrics_alone(open_adapter: OpenAdapter) -> None:
    port = free_port()
    foreign = Counter("metrics_port_test_foreign", "Stands for metrics of LMCache", registry=REGISTRY)
    driver = open_adapter(metrics_port=port)
    try:
        status, text = get(port, "/metrics")
        names = {family.name for family in text_string_to_metric_families(text)}
        assert status == 200
        assert {"couchbase_lm_cache_healthy", "couchbase_lm_cache_sent_bytes", "metrics_port_test_foreign"} <= names
        assert [get(port, path)[0] for path in ("/", "/env", "/config", "/metrics/reset", "/metricsx")] == [404] * 5
        post = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", data=b"x", method="POST")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(post, timeout=5)
        assert refused.value.code == 501
    finally:
        REGISTRY.unregister(foreign)
    with socket.create_connection(("127.0.0.1", port)):  # a client that says nothing holds nothing up
        driver.adapter.close()
    with pytest.raises(urllib.error.URLError):
        get(port, "/metrics")


def test_the_port_listens_everywhere_and_gives_the_series_that_are_asked_for(open_adapter: OpenAdapter) -> None:
    port = free_port()
    open_adapter(metrics_port=port, metrics_host="")
    query = "name[]=couchbase_lm_cache_healthy&name[]=couchbase_lm_cache_load_seconds_count"
    _, text = get(port, f"/metrics?{query}")
    names = {line.split("{")[0] for line in text.splitlines() if not line.startswith("#")}
    assert names == {"couchbase_lm_cache_healthy", "couchbase_lm_cache_load_seconds_count"}
    if socket.has_dualstack_ipv6():
        with urllib.request.urlopen(f"http://[::1]:{port}/metrics?{query}", timeout=5) as response:
            assert response.status == 200


def test_a_port_in_use_is_refused_by_name_and_leaves_nothing_behind(place: Place, open_adapter: OpenAdapter) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = int(taken.getsockname()[1])
        with pytest.raises(SettingsError, match=rf"metrics_port {port}: cannot listen there"):
            open_adapter(metrics_port=port)
    assert value("healthy", place) is None
    assert open_adapter(metrics_port=port).adapter.report_status()["is_healthy"] is True


def test_no_series_twice_and_no_secret(place: Place, open_adapter: OpenAdapter) -> None:
    open_adapter(), open_adapter()
    text = generate_latest(REGISTRY).decode()
    series = [line.rsplit(" ", 1)[0] for line in text.splitlines() if line.startswith("couchbase_lm_cache")]
    assert len(series) == len(set(series))
    assert place.params["password"] not in text
    assert isinstance(REGISTRY, CollectorRegistry)
