"""Starting without Couchbase, and losing the right to use it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from conftest import BUCKET, PASSWORD, SCOPE, OpenAdapter
from lmcache_parts import KIB, MIB, L1Memory, key, keys
from observing import is_healthy, wait_until

from couchbase_lm_cache.errors import ConnectError
from e2e.couchbase_emulator.running import RunningEmulator


def test_a_ca_file_that_is_not_there_is_named(open_adapter: OpenAdapter) -> None:
    with pytest.raises(ConnectError, match="tls_ca_file /nonexistent cannot be read"):
        open_adapter(
            connection_string="couchbases://127.0.0.1:1", tls_ca_file="/nonexistent", connect_timeout_seconds=0.5
        )


def test_a_strict_start_fails_in_time_and_says_why(open_adapter: OpenAdapter) -> None:
    begun = time.monotonic()
    with pytest.raises(ConnectError, match=r"within 1 s: no answer in time: the address .*startup: degraded"):
        open_adapter(connection_string="couchbase://127.0.0.1:1", connect_timeout_seconds=1.0)
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"password": "wrong"}, "username or password"),
        ({"bucket_name": "absent"}, "bucket absent cannot be opened|no right on bucket absent"),
        ({"collection_name": "absent"}, "absent does not exist, or the user lacks the roles"),
        ({"password": None, "password_file": "/nonexistent"}, "password_file /nonexistent cannot be read"),
    ],
)
def test_a_strict_start_names_the_likely_causes(open_adapter: OpenAdapter, changes: dict[str, Any], cause: str) -> None:
    with pytest.raises(ConnectError, match=cause) as refused:
        open_adapter(connect_timeout_seconds=1.5, **changes)
    assert "wrong" not in str(refused.value).replace("is wrong", "")


def test_a_degraded_start_returns_at_once_serves_misses_and_becomes_healthy_by_itself(
    open_adapter: OpenAdapter, emulator: RunningEmulator, l1: L1Memory
) -> None:
    """As in a new pod: the user and the collection do not exist yet."""
    begun = time.monotonic()
    driver = open_adapter(username="late-user", collection_name="late", startup="degraded", connect_timeout_seconds=2.0)
    source, target = l1.filled(2 * MIB), l1.take(2 * MIB)
    assert driver.lookup(keys(3)) == [False] * 3
    assert driver.load(keys(1), target) == [False]
    assert time.monotonic() - begun < 2
    status = driver.adapter.report_status()
    assert (status["is_healthy"], status["connection_state"]) == (False, "connecting")
    emulator.create_collection(BUCKET, SCOPE, "late")
    emulator.create_user(
        "late-user", PASSWORD, f"data_reader[{BUCKET}:{SCOPE}:late],data_writer[{BUCKET}:{SCOPE}:late]"
    )
    wait_until(lambda: is_healthy(driver), "the late start")
    assert driver.store(keys(1), source).is_successful()
    assert driver.load(keys(1), target) == [True]


@pytest.mark.usefixtures("eager_probes")
def test_rotated_credentials_are_picked_up(
    open_adapter: OpenAdapter, emulator: RunningEmulator, l1: L1Memory, tmp_path: Path
) -> None:
    """A second user takes over, as an operator rotates; then the first one is gone."""
    roles = f"data_reader[{BUCKET}],data_writer[{BUCKET}]"
    emulator.create_user("blue", "blue-password", roles)
    username, password = tmp_path / "username", tmp_path / "password"
    username.write_text("blue")
    password.write_text("blue-password")
    driver = open_adapter(username=None, password=None, username_file=str(username), password_file=str(password))
    assert driver.store(keys(1), l1.filled(KIB)).is_successful()
    emulator.create_user("green", "green-password", roles)
    password.write_text("green-password")
    username.write_text("green")
    wait_until(lambda: driver.adapter.report_status()["username"] == "green", "the new login")
    emulator.create_user("blue", "blue-password", "")
    assert driver.lookup(keys(1)) == [True]
    assert is_healthy(driver)


@pytest.mark.usefixtures("eager_probes")
def test_lost_rights_become_misses_and_come_back(
    open_adapter: OpenAdapter, emulator: RunningEmulator, l1: L1Memory
) -> None:
    roles = f"data_reader[{BUCKET}],data_writer[{BUCKET}]"
    emulator.create_user("fickle", "fickle-password", roles)
    driver = open_adapter(
        username="fickle", password="fickle-password", kv_timeout_seconds=1.0, connect_timeout_seconds=2.0
    )
    assert driver.store(keys(1), l1.filled(KIB)).is_successful()
    emulator.create_user("fickle", "fickle-password", "")
    assert driver.lookup(keys(1)) == [False]
    wait_until(lambda: not is_healthy(driver), "noticing the loss")
    emulator.create_user("fickle", "fickle-password", roles)
    wait_until(lambda: is_healthy(driver), "recovery")
    assert driver.lookup(keys(1)) == [True]


def test_a_user_who_may_only_read_goes_on_reading_and_status_says_why_nothing_is_stored(
    open_adapter: OpenAdapter, emulator: RunningEmulator, l1: L1Memory
) -> None:
    assert open_adapter().store(keys(1), l1.filled(KIB)).is_successful()
    emulator.create_user("reader", "reader-password", f"data_reader[{BUCKET}]")
    driver = open_adapter(username="reader", password="reader-password")
    # The direct transport opens a connection for each kind of traffic when it is first needed.
    assert not driver.store([key(9)], l1.filled(KIB)).is_successful()
    assert driver.load(keys(1), l1.take(KIB)) == [True]
    logins = emulator.counters.kv_logins
    for number in range(5):
        assert not driver.store([key(10 + number)], l1.filled(KIB)).is_successful()
        assert driver.load(keys(1), l1.take(KIB)) == [True]
    status = driver.adapter.report_status()
    assert (status["is_healthy"], status["connection_state"]) == (False, "ready")
    assert "data_writer" in status["reason"]
    assert emulator.counters.kv_logins == logins, "a right that is missing does not call for a new connection"
    emulator.create_user("reader", "reader-password", f"data_reader[{BUCKET}],data_writer[{BUCKET}]")
    assert driver.store([key(20)], l1.filled(KIB)).is_successful()
    assert is_healthy(driver)


@pytest.mark.usefixtures("eager_probes")
def test_a_new_password_that_is_wrong_does_not_keep_the_present_login_from_recovering(
    open_adapter: OpenAdapter, emulator: RunningEmulator, l1: L1Memory, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    limits = {"kv_timeout_seconds": 0.5, "connect_timeout_seconds": 1.0}
    driver = open_adapter(password=None, password_file=str(password), **limits)
    assert driver.store(keys(1), l1.filled(KIB)).is_successful()
    password.write_text("wrong")
    emulator.faults.drop = -1
    for _ in range(2):
        driver.lookup(keys(1))
    wait_until(lambda: not is_healthy(driver), "noticing the outage")
    emulator.faults.clear()
    wait_until(lambda: is_healthy(driver), "recovery")
    assert driver.lookup(keys(1)) == [True]
