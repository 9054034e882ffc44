"""Through LMCache's storage manager: what its server does with our adapter, in good and bad times."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from conftest import Place
from lmcache_parts import keys
from storage_managers import OBJECT_BYTES, manager


def test_another_server_answers_from_couchbase(place: Place) -> None:
    with manager(place.params) as one:
        written = one.put(keys(12))
        one.await_stored(12)
    with manager(place.params) as other:
        result = other.answer(other.ask(keys(14)))
        assert (result.l1_hit_count, result.l2_hit_count) == (0, 12)
        assert other.read(keys(12)) == written
        assert other.counts()["bytes_loaded"] == 12 * OBJECT_BYTES
        assert other.storage.report_status()["is_healthy"] is True


def test_a_hole_shortens_the_prefix_and_nothing_else(place: Place) -> None:
    with manager(place.params) as one:
        written = one.put(keys(8))
        one.await_stored(8)
        one.forget()
        one.adapter.delete([keys(8)[5]])
        result = one.answer(one.ask(keys(8)))
        assert result.l2_hit_count == 5
        assert one.read(keys(5)) == written[:5]


def test_requests_with_a_common_prefix_do_not_end_each_others_loads(place: Place) -> None:
    """The second one unlocks the chunks it cannot reserve while the first one is loading them."""
    with manager(place.params) as one:
        written = one.put(keys(8))
        one.await_stored(8)
        one.forget()
        place.emulator.faults.slow_seconds = 0.3
        first = one.ask(keys(8))
        time.sleep(0.45)  # the first is past its lookup, and loading
        others = [one.ask(keys(8)) for _ in range(3)]
        assert one.answer(first).l2_hit_count == 8
        for handle in others:
            one.answer(handle)
        place.emulator.faults.clear()
        assert one.read(keys(8)) == written
        assert not any(name.startswith("loads_failed_revoked") for name in one.counts())


def test_more_hung_requests_than_slots_all_get_their_answer(place: Place) -> None:
    with manager(place.params | {"task_deadline_seconds": 1.0, "kv_timeout_seconds": 1.0}) as one:
        one.put(keys(20))
        one.await_stored(20)
        one.forget()
        place.emulator.faults.drop = -1
        begun = time.monotonic()
        handles = [one.ask([name]) for name in keys(20)]
        assert all(one.answer(handle).l2_hit_count == 0 for handle in handles)
        assert time.monotonic() - begun < 10
        place.emulator.faults.clear()


def test_the_server_stops_in_time_during_a_load(place: Place) -> None:
    with manager(place.params) as one:
        one.put(keys(8))
        one.await_stored(8)
        one.forget()
        place.emulator.faults.slow_seconds = 1.0
        one.ask(keys(8))
        begun = time.monotonic()
    assert time.monotonic() - begun < 20


def test_chunks_written_before_the_server_stops_are_stored(place: Place) -> None:
    place.emulator.faults.slow_seconds = 0.1
    with manager(place.params) as one:
        one.put(keys(6))
        deadline = time.monotonic() + 10
        while one.adapter.report_status()["stores_in_flight"] == 0:
            assert time.monotonic() < deadline
            time.sleep(0.005)
    place.emulator.faults.clear()
    with manager(place.params) as other:
        assert other.answer(other.ask(keys(6))).l2_hit_count == 6


def test_serving_goes_on_while_couchbase_is_not_there_yet(place: Place) -> None:
    nowhere = {"connection_string": "couchbase://127.0.0.1:1", "startup": "degraded", "connect_timeout_seconds": 1.0}
    params = place.params | nowhere
    with manager(params) as one:
        written = one.put(keys(3))
        result = one.answer(one.ask(keys(5)), timeout_seconds=5)
        assert (result.l1_hit_count, result.l2_hit_count) == (3, 0)
        assert one.read(keys(3)) == written
        assert one.storage.report_status()["is_healthy"] is False


@pytest.mark.parametrize("kind", ["fp8", "aesgcm"])
def test_serialised_and_encrypted_chunks(place: Place, kind: str, tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_bytes(bytes(range(32)))
    serde = {"fp8": {"type": "fp8"}, "aesgcm": {"type": "aesgcm", "master_key_path": str(key_file)}}[kind]
    with manager(place.params, serde=serde) as one:
        written = one.put(keys(4))
        one.await_stored(4)
        one.forget()
        assert one.answer(one.ask(keys(4))).l2_hit_count == 4
        read = one.read(keys(4))
        assert [len(item) for item in read] == [OBJECT_BYTES] * 4
        if kind == "aesgcm":
            assert read == written
            assert all(written[0][:64] not in bytes(item.value) for item in place.documents().values())
