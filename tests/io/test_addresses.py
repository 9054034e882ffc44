"""Looking names up: a zone whose servers are dead holds up nobody who asks for other names."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from couchbase_lm_operator.core.couchbase.connection_string import Address
from couchbase_lm_operator.io.addresses import AddressGuard, UnresolvedError

if TYPE_CHECKING:
    from collections.abc import Iterator

GUARD = AddressGuard()
ANSWER = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.7", 0))]


class Resolver:
    """Answers at once, but for names in the zone ``dead``, for which it waits until ``heals``."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.heals = threading.Event()

    def __call__(self, host: str, *_: Any, **__: Any) -> list[Any]:
        self.asked.append(host)
        if host.endswith(".dead"):
            assert self.heals.wait(30)
        if host.startswith("unknown"):
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return list(ANSWER)


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    it = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", it)
    yield it
    it.heals.set()


async def test_names_of_a_dead_zone_are_asked_once_at_a_time_and_keep_no_other_name_waiting(resolver: Resolver) -> None:
    dead = [f"n{number % 20}.dead" for number in range(100)]
    asking = [asyncio.create_task(GUARD.resolve(Address(host, 8091))) for host in dead]
    async with asyncio.timeout(5):
        assert await GUARD.resolve(Address("alive.test", 8091)) == ("192.0.2.7",)
        assert await GUARD.resolve(Address("192.0.2.8", 8091)) == ("192.0.2.8",)
        assert await asyncio.to_thread(lambda: 7) == 7  # nor other work in threads
    for task in asking[:50]:  # visits that are over
        task.cancel()
    await asyncio.wait(asking[:50])
    assert sorted(host for host in resolver.asked if host.endswith(".dead")) == sorted(set(dead))
    resolver.heals.set()
    assert set(await asyncio.gather(*asking[50:])) == {("192.0.2.7",)}
    assert await GUARD.resolve(Address("n0.dead", 8091)) == ("192.0.2.7",)
    assert resolver.asked.count("n0.dead") == 2  # answers are not kept


async def test_a_name_without_an_address_is_told_to_all_who_asked(resolver: Resolver) -> None:
    asking = [GUARD.resolve(Address("unknown.dead", 8091)) for _ in range(3)]
    asyncio.get_running_loop().call_later(0.1, resolver.heals.set)
    results = await asyncio.gather(*asking, return_exceptions=True)
    assert {type(result) for result in results} == {UnresolvedError}
    assert resolver.asked == ["unknown.dead"]


@pytest.mark.parametrize("host", ["a" * 70 + ".test", "a\0b", ""])
async def test_a_name_that_can_be_none_has_no_address(host: str) -> None:
    with pytest.raises(UnresolvedError):
        await GUARD.resolve(Address(host, 8091))
