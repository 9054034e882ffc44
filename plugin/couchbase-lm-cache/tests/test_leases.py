"""Unlocks end the loads they are meant for, and others only where it cannot be told."""

from __future__ import annotations

from dataclasses import dataclass

from couchbase_lm_cache.buffers import GuardedBuffer
from couchbase_lm_cache.leases import Leases


@dataclass(frozen=True)
class Key:
    """Equal by value, as LMCache's keys are."""

    name: str


def memory() -> GuardedBuffer:
    return GuardedBuffer(memoryview(bytearray(4)))


def test_an_aborted_load_loses_its_memory() -> None:
    leases: Leases[Key] = Leases()
    key, buffer = Key("a"), memory()
    leases.found([key])
    leases.loading(key, buffer)
    leases.unlock([key])
    assert buffer.is_revoked


def test_a_second_request_with_the_same_prefix_does_not_end_the_first_ones_load() -> None:
    leases: Leases[Key] = Leases()
    first, second, buffer = Key("a"), Key("a"), memory()
    leases.found([first])
    leases.loading(first, buffer)
    leases.found([second])
    leases.unlock([second])
    assert not buffer.is_revoked
    leases.unlock([first])
    assert buffer.is_revoked


def test_an_unlock_of_unknown_origin_ends_every_load_of_an_equal_key() -> None:
    leases: Leases[Key] = Leases()
    key, buffer = Key("a"), memory()
    leases.found([key])
    leases.loading(key, buffer)
    leases.unlock([Key("a")])
    assert buffer.is_revoked


def test_a_load_that_was_never_looked_up_ends_with_any_unlock_of_an_equal_key() -> None:
    leases: Leases[Key] = Leases()
    key, other, buffer = Key("a"), Key("a"), memory()
    leases.loading(key, buffer)
    leases.found([other])
    leases.unlock([other])
    assert buffer.is_revoked


def test_a_finished_load_is_forgotten() -> None:
    leases: Leases[Key] = Leases()
    key, buffer = Key("a"), memory()
    lease = leases.loading(key, buffer)
    leases.ended([lease])
    leases.ended([lease])
    leases.unlock([key])
    assert not buffer.is_revoked


def test_other_keys_are_left_alone() -> None:
    leases: Leases[Key] = Leases()
    buffer = memory()
    leases.loading(Key("a"), buffer)
    leases.unlock([Key("b")])
    assert not buffer.is_revoked
