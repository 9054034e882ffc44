"""`transport: auto` after it had to fall back to the SDK: it finds its way to the direct transport by itself."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from conftest import OpenAdapter
from lmcache_parts import KIB, WAIT_SECONDS, Driver, L1Memory, content, keys

from couchbase_lm_cache import connection, direct
from couchbase_lm_cache.errors import ConnectError


def await_that(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Make the direct transport unusable until the patch is undone; gives the moments at which it was tried."""
    tried: list[float] = []

    def refuse(*_: object) -> None:
        tried.append(time.monotonic())
        raise ConnectError("the test lets nobody connect directly")

    monkeypatch.setattr(direct, "connect", refuse)
    return tried


def works(driver: Driver, l1: L1Memory, first: int) -> None:
    source, target = l1.filled(3 * KIB, seed=first), l1.take(3 * KIB)
    assert driver.store(keys(1, first), source).is_successful()
    assert driver.load(keys(1, first), target) == [True]
    assert content(target[0]) == content(source[0])


@pytest.mark.usefixtures("eager_probes")
def test_it_is_tried_again_while_the_sdk_does_the_work(
    open_adapter: OpenAdapter, l1: L1Memory, monkeypatch: pytest.MonkeyPatch, attempts: list[float]
) -> None:
    real = connection.FIRST_RETRY_SECONDS
    assert real >= 60, "attempts must be rare"
    monkeypatch.setattr(connection, "FIRST_RETRY_SECONDS", 0.3)
    driver = open_adapter(transport="auto")
    status = driver.adapter.report_status()
    assert (status["transport"], status["is_healthy"]) == ("sdk", True)
    assert "nobody connect directly" in status["transport_notice"]
    await_that(lambda: len(attempts) >= 3, "it was not tried again")
    assert attempts[2] - attempts[1] >= 0.5, "the pauses must grow"
    works(driver, l1, 0)
    assert driver.adapter.report_status()["transport"] == "sdk"
    monkeypatch.undo()
    await_that(lambda: driver.adapter.report_status()["transport"] == "direct", "it was not taken back")
    status = driver.adapter.report_status()
    assert status["is_healthy"] is True
    assert "transport_notice" not in status
    works(driver, l1, 1)


@pytest.mark.usefixtures("eager_probes")
def test_who_asks_for_the_sdk_keeps_it(
    open_adapter: OpenAdapter, monkeypatch: pytest.MonkeyPatch, attempts: list[float]
) -> None:
    monkeypatch.setattr(connection, "FIRST_RETRY_SECONDS", 0.0)
    driver = open_adapter(transport="sdk")
    age = driver.adapter.report_status()["last_probe_age_seconds"]
    await_that(lambda: driver.adapter.report_status()["last_probe_age_seconds"] != age, "nothing was probed")
    assert driver.adapter.report_status()["transport"] == "sdk"
    assert attempts == []
