"""`transport: auto` that opens while something is wrong with the direct transport: the SDK serves, and all are told."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from conftest import PASSWORD, SCOPE, USERNAME, OpenAdapter, Place
from lmcache_parts import KIB, L1Memory, content, keys
from observing import wait_until
from prometheus_client import REGISTRY

from couchbase_lm_cache import connection, direct, transports
from couchbase_lm_cache.credentials import Credentials
from couchbase_lm_cache.settings import CouchbaseLMCacheConfig
from couchbase_lm_cache.transport import Outcome, Transport

SECONDS = 10.0
pytestmark = pytest.mark.parametrize("place", ["auto"], indirect=True)


def told_by_metrics(place: Place) -> dict[str, str]:
    """Transport and reason, from the metrics of this place."""
    for family in REGISTRY.collect():
        if family.name == "couchbase_lm_cache_transport_info":
            return {
                sample.labels["transport"]: sample.labels["notice"]
                for sample in family.samples
                if sample.labels["collection"] == f"{SCOPE}.{place.collection}" and sample.value == 1
            }
    return {}


def when_the_sdk_is_connected(monkeypatch: pytest.MonkeyPatch, action: Callable[[], None]) -> None:
    """Let a fault begin after the SDK has connected and before the direct transport does."""
    real = direct.connect

    def begin(*arguments: Any) -> Transport:
        action()
        return real(*arguments)

    monkeypatch.setattr(direct, "connect", begin)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("unknown_hellos", "no Couchbase that the direct transport understands"),
        ("wrong_opaques", "does not answer"),
        ("refusals", "does not answer"),
        ("auth_failures", "refused the username or password"),
        ("corrupt_values", "did not find as it was"),
        ("cut_values", "did not find as it was"),
        ("extra_bytes", "did not find as it was"),
    ],
)
def test_the_sdk_serves_and_one_warning_the_status_and_the_metric_tell_why(
    place: Place,
    open_adapter: OpenAdapter,
    l1: L1Memory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    fault: str,
    reason: str,
) -> None:
    faults = place.emulator.faults
    when_the_sdk_is_connected(monkeypatch, lambda: setattr(faults, fault, 1 if fault == "extra_bytes" else -1))
    with caplog.at_level(logging.WARNING):
        driver = open_adapter(transport="auto", connect_timeout_seconds=6.0)
    faults.clear()
    status = driver.adapter.report_status()
    assert (status["transport"], status["is_healthy"]) == ("sdk", True)
    notice = str(status["transport_notice"])
    assert reason in notice
    assert told_by_metrics(place) == {"sdk": notice}
    warnings = [entry.getMessage() for entry in caplog.records if "direct transport is not used" in entry.getMessage()]
    assert warnings == [f"The direct transport is not used, the slower SDK is: {notice}"]
    source, target = l1.filled(3 * KIB), l1.take(3 * KIB)
    assert driver.store(keys(1), source).is_successful()
    assert driver.load(keys(1), target) == [True]
    assert content(target[0]) == content(source[0])


@pytest.mark.usefixtures("eager_probes")
def test_trying_again_in_vain_is_not_told_again(
    place: Place, open_adapter: OpenAdapter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[int] = []

    def fail(*_: object) -> Transport:
        tried.append(1)
        raise OverflowError("getsockaddrarg: port must be 0-65535.")

    monkeypatch.setattr(direct, "connect", fail)
    monkeypatch.setattr(connection, "FIRST_RETRY_SECONDS", 0.1)
    monkeypatch.setattr(connection, "LAST_RETRY_SECONDS", 0.1)
    with caplog.at_level(logging.WARNING):
        driver = open_adapter(transport="auto")
        wait_until(lambda: len(tried) >= 4, "another attempt")
    told = [entry.getMessage() for entry in caplog.records if "direct transport is not used" in entry.getMessage()]
    assert len(told) == 1
    assert "OverflowError" in told[0]
    assert told_by_metrics(place) == {"sdk": driver.adapter.report_status()["transport_notice"]}


def open_auto(place: Place) -> Transport:
    settings = CouchbaseLMCacheConfig.from_dict(place.params, environ={})
    return transports.open_transport(settings, Credentials(USERNAME, PASSWORD), SECONDS)


def test_an_unexpected_failure_to_connect_leads_to_the_sdk(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Transport:
        raise MemoryError

    monkeypatch.setattr(direct, "connect", fail)
    transport = open_auto(place)
    assert (transport.name, transport.notice) == ("sdk", "it failed unexpectedly (MemoryError)")
    assert transport.write_json([("d", b"{}")], 0, SECONDS) == [Outcome.OK]
    transport.close()


def test_an_unexpected_failure_of_the_comparison_leads_to_the_sdk_and_leaves_nothing_open(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[Transport] = []

    def fail(reference: Transport, candidate: Transport) -> str | None:
        met.extend((reference, candidate))
        raise KeyError("a surprise")

    monkeypatch.setattr(transports, "compare", fail)
    transport = open_auto(place)
    assert (transport.name, transport.notice) == ("sdk", "it failed unexpectedly (KeyError)")
    assert transport is met[0]
    assert met[1].exists(["d"], 1.0) == [Outcome.BUSY], "the direct transport is closed"
    assert transport.exists(["d"], SECONDS) == [Outcome.MISSING]
    transport.close()
