"""Warnings of a plan are seen in the cluster: in status while they last, and once each as an Event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.reconcile.world import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.reconcile.world import World


async def _events(world: World) -> list[tuple[str, str]]:
    events, _ = await world.cluster.objects("Event", world.namespace)
    about = {"EnvNotInFingerprint", "KeyPrefixOverridden"}
    return sorted((each["type"], each["reason"]) for each in events if each["reason"] in about)


async def _is(found: Callable[[], Awaitable[list[str]]], wanted: list[str]) -> bool:
    return await found() == wanted


async def test_warnings_are_in_status_and_told_once(world: World) -> None:
    async def reasons() -> list[str]:
        return [each["reason"] for each in (await world.status()).get("warnings") or []]

    async with world.operator():
        await world.serve(engine__envFrom=[{"configMapRef": {"name": "tuning"}}])
        assert await reasons() == ["EnvNotInFingerprint"]
        await world.edit(spec={"replicas": 3})
        await world.until_condition("Ready", "False")
        await world.make_available()
        await world.until_condition("Ready", "True")
        await world.edit(spec={"cache": {"keyPrefix": "mine:"}})
        await until(lambda: _is(reasons, ["KeyPrefixOverridden"]))
        # a spec that cannot be planned says nothing new about warnings
        await world.edit(spec={"cache": {"chunkSize": 100}})
        await world.until_condition("Ready", "False", "ChunkSizeInvalid")
        assert await reasons() == ["KeyPrefixOverridden"]
        await world.edit(spec={"cache": None, "engine": None})
        await until(lambda: _is(reasons, []))
    told = [("Warning", "EnvNotInFingerprint"), ("Warning", "KeyPrefixOverridden")]
    assert await _events(world) == told
    async with world.operator():
        await world.make_available()
        await world.until_condition("Ready", "True")
    assert await _events(world) == told
