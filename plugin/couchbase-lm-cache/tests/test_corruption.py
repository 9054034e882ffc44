"""Ten thousand damaged documents, and ten thousand damaged answers: never a wrong byte, never a task without an answer.

Each document is damaged behind the adapter's back in one of the ways that documents go bad; each answer changes in
random bytes on its way, header and login included. Exceptions out of ``submit_*`` would fail the test by themselves.
"""

from __future__ import annotations

import random
import statistics
import time

import pytest
from conftest import OpenAdapter, Place
from lmcache_parts import KIB, Driver, L1Memory, content, create_adapter, keys
from observing import is_healthy, wait_until

from couchbase_lm_cache import connection
from couchbase_lm_cache.document_flags import BINARY_FLAGS, JSON_FLAGS

CORRUPTIONS = 10_000
OBJECTS = 200
PER_TASK = 50
LIMITS = {
    "kv_timeout_seconds": 0.15,
    "task_deadline_seconds": 1.0,
    "connect_timeout_seconds": 2.0,
    "shard_size_bytes": 4 * KIB,
}
HEADER_BYTES = 24
WITH_HEADERS = 1_000
# couchbase 4.6 calls std::terminate on a damaged header (magic, opcode, lengths, data type) and on damaged JSON of a
# refusal or a map; behind a damaged body length it waits without end. So it gets damage behind the opaque, and only in
# answers about documents.
FIRST_BYTE = {"direct": 0, "sdk": 16}
# Three shards, so that no document has the length of an object: in the plain format it could be one.
OBJECT_BYTES = 2_500
Documents = dict[str, tuple[bytes, int]]


def damaged(name: str, documents: Documents, dice: random.Random) -> tuple[bytes, int]:
    """Damage one document: bits, length, content of another one, flags, numbers of a manifest."""
    value, flags = bytearray(documents[name][0]), documents[name][1]
    kind = dice.choice(("bit", "bits", "cut", "longer", "other", "flags", "number", "noise"))
    if kind == "bit":
        value[dice.randrange(len(value))] ^= 1 << dice.randrange(8)
    elif kind == "bits":
        for _ in range(dice.randint(2, 30)):
            value[dice.randrange(len(value))] ^= dice.randint(1, 255)
    elif kind == "cut":
        del value[dice.randrange(len(value)) :]
    elif kind == "longer":
        value += dice.randbytes(dice.choice((1, 7, 300, 100_000)))
    elif kind == "other":
        value, flags = bytearray(documents[other := dice.choice(sorted(documents))][0]), documents[other][1]
    elif kind == "flags":
        flags = dice.choice((0, 1, dice.getrandbits(32), BINARY_FLAGS if flags == JSON_FLAGS else JSON_FLAGS))
    elif kind == "number":
        digits = [place for place, byte in enumerate(value) if byte in b"0123456789"]
        place = dice.choice(digits or [0])
        value[place : place + 1] = dice.choice((b"-1", b"9" * 40, b"1e9", b"0", b"NaN", b"null", b"\xff"))
    else:
        value = bytearray(dice.randbytes(dice.choice((0, 1, 24, len(value)))))
    return bytes(value), flags


def test_damaged_documents_never_become_wrong_bytes(open_adapter: OpenAdapter, l1: L1Memory, place: Place) -> None:
    driver = open_adapter(shard_size_bytes=KIB)
    dice = random.Random(f"documents {place.transport}")
    names, source, target = keys(OBJECTS), l1.filled(*[OBJECT_BYTES] * OBJECTS), l1.take(*[OBJECT_BYTES] * OBJECTS)
    expected = [content(item) for item in source]
    assert driver.store(names, source).is_successful()
    whole: Documents = {name: (document.value, document.flags) for name, document in place.documents().items()}
    of_object = [sorted(whole)[first : first + 4] for first in range(0, len(whole), 4)]
    corruptions = loads = 0
    while corruptions < CORRUPTIONS:
        broken = {dice.choice(of): b"" for of in of_object if dice.random() < 0.9}
        place.put(whole | {name: damaged(name, whole, dice) for name in broken})
        for item in target:
            item.byte_array.cast("B")[:] = bytes(OBJECT_BYTES)
        loaded = driver.load(names, target)
        for is_loaded, item, original in zip(loaded, target, expected, strict=True):
            assert not is_loaded or content(item) == original, "a wrong byte was called loaded"
        intact = sum(not broken.keys() & set(of) for of in of_object)
        assert sum(loaded) >= intact, "damage to one object cost another one"
        corruptions += len(broken)
        loads += sum(loaded)
    assert loads < corruptions
    place.put(whole)
    assert driver.load(names, target) == [True] * OBJECTS
    assert is_healthy(driver)


class Rounds:
    """Loads, lookups and stores of all objects, side by side, of a small answer or a damaged one."""

    def __init__(self, place: Place, l1: L1Memory) -> None:
        self.place = place
        self.driver = Driver(create_adapter(place.params | LIMITS))
        self.names, sizes = keys(OBJECTS), [10_000] * OBJECTS
        self.source, self.target = l1.filled(*sizes), l1.take(*sizes)
        self.expected = [content(item) for item in self.source]
        assert self.driver.store(self.names, self.source).is_successful()
        self.whole = {name: (document.value, document.flags) for name, document in place.documents().items()}
        self.loaded = 0
        self.submitting_seconds: list[float] = []

    def run(self) -> None:
        """One round; every task ends in time, and what it calls loaded is right."""
        names, target, adapter = self.names, self.target, self.driver.adapter
        for item in target:
            item.byte_array.cast("B")[:] = bytes(item.get_size())
        begun = time.monotonic()
        firsts = range(0, OBJECTS, PER_TASK)
        loads = [adapter.submit_load_task(names[n : n + PER_TASK], target[n : n + PER_TASK]) for n in firsts]
        lookup = adapter.submit_lookup_and_lock_task(names, {})
        store = adapter.submit_store_task(names[:PER_TASK], self.source[:PER_TASK])
        self.submitting_seconds.append(time.monotonic() - begun)
        loaded = [bit for load in loads for bit in self.driver.loaded(load, PER_TASK)]
        self.driver.looked_up(lookup, OBJECTS)
        assert time.monotonic() - begun < 3, "a task outlived its deadline"
        self.driver.stored(store)
        assert time.monotonic() - begun < 7, "a store outlived its deadline"
        for is_loaded, item, original in zip(loaded, target, self.expected, strict=True):
            assert not is_loaded or content(item) == original, "a wrong byte was called loaded"
        self.loaded += sum(loaded)

    def damage(self, answers: int, share: float, from_byte: int) -> None:
        """Run rounds until so many answers were damaged."""
        counters, faults = self.place.emulator.counters, self.place.emulator.faults
        faults.corrupt_from_byte = from_byte
        faults.corrupt_documents_only = int(self.place.transport == "sdk")
        end = counters.kv_damaged_answers + answers
        while counters.kv_damaged_answers < end:
            self.restore()
            faults.corrupt_stream = share
            self.run()
            faults.corrupt_stream = 0.0
        # of hundreds of rounds one may meet a machine that stands still
        assert statistics.median(self.submitting_seconds) < 0.1, "submitting must not block"

    def restore(self) -> None:
        """Have everything whole again: damaged objects were removed."""
        self.place.put(self.whole)
        wait_until(self._is_usable, "the connection", 60)

    def _is_usable(self) -> bool:
        return self.driver.adapter.report_status()["connection_state"] == "ready"


def test_damaged_answers_never_become_wrong_bytes(
    own_place: Place, l1: L1Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of the damage spares headers, so that connections live and everything damaged is looked at."""
    monkeypatch.setattr(connection, "PROBE_INTERVAL_SECONDS", 0.1)
    monkeypatch.setattr(connection, "_OUTAGE_PROBE_INTERVAL_SECONDS", 0.05)
    rounds = Rounds(own_place, l1)
    rounds.damage(CORRUPTIONS - WITH_HEADERS, share=0.3, from_byte=HEADER_BYTES)
    rounds.damage(WITH_HEADERS, share=0.03, from_byte=FIRST_BYTE[own_place.transport])
    assert rounds.loaded, "nothing was loaded between the damage"
    rounds.restore()
    wait_until(lambda: rounds.driver.load(rounds.names, rounds.target) == [True] * OBJECTS, "loads without damage")
    rounds.driver.adapter.close()
