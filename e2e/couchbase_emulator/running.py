"""An emulator in a thread of its own, for synchronous code."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from e2e.couchbase_emulator.counters import Counters, Mutations
from e2e.couchbase_emulator.emulator import Emulator
from e2e.couchbase_emulator.faults import Faults
from e2e.couchbase_emulator.model.documents import Document
from e2e.couchbase_emulator.options import EmulatorOptions

_T = TypeVar("_T")
_TIMEOUT_SECONDS = 30


class RunningFaults:
    """Fault switches of a running emulator: attributes of `Faults`, and nodes that can be killed and revived."""

    def __init__(self, running: "RunningEmulator", faults: Faults) -> None:
        object.__setattr__(self, "_running", running)
        object.__setattr__(self, "_faults", faults)

    def __getattr__(self, name: str) -> Any:
        """A switch."""
        return getattr(self._faults, name)

    def __setattr__(self, name: str, value: float) -> None:
        """Set a switch; raises ValueError for an unknown one."""
        self._faults.update({name: value})

    def clear(self) -> None:
        """Switch everything off."""
        self._faults.clear()

    def kill_node(self, index: int) -> None:
        """See `Emulator.kill_node`."""
        self._running.kill_node(index)

    def revive_node(self, index: int) -> None:
        """See `Emulator.revive_node`."""
        self._running.revive_node(index)


class RunningEmulator:
    """Handle on an emulator in another thread; every call is carried out there."""

    def __init__(self, emulator: Emulator, loop: asyncio.AbstractEventLoop) -> None:
        self._emulator = emulator
        self._loop = loop
        self.faults = RunningFaults(self, emulator.faults)
        self.options: EmulatorOptions = emulator.options
        self.admin_username: str = emulator.admin_username
        self.admin_password: str = emulator.admin_password
        self.ca_path: Path | None = emulator.ca_path

    @property
    def connection_string(self) -> str:
        """See `Emulator.connection_string`."""
        return self._emulator.connection_string

    @property
    def tls_connection_string(self) -> str | None:
        """See `Emulator.tls_connection_string`; None without TLS."""
        return self._emulator.tls_connection_string if self.options.tls else None

    @property
    def kv_addresses(self) -> list[tuple[str, int]]:
        """See `Emulator.kv_addresses`."""
        return self._emulator.kv_addresses

    @property
    def management_urls(self) -> list[str]:
        """See `Emulator.management_urls`."""
        return self._emulator.management_urls

    @property
    def tls_management_urls(self) -> list[str]:
        """See `Emulator.tls_management_urls`; none without TLS."""
        return self._emulator.tls_management_urls if self.options.tls else []

    def call(self, function: Callable[[Emulator], _T]) -> _T:
        """Result of a function that gets the emulator in its own thread."""

        async def carry_out() -> _T:
            return function(self._emulator)

        return asyncio.run_coroutine_threadsafe(carry_out(), self._loop).result(_TIMEOUT_SECONDS)

    def run(self, function: Callable[[Emulator], Coroutine[Any, Any, _T]]) -> _T:
        """The same for a coroutine function."""
        return asyncio.run_coroutine_threadsafe(function(self._emulator), self._loop).result(_TIMEOUT_SECONDS)

    @property
    def counters(self) -> Counters:
        """What clients did; the live object."""
        return self._emulator.counters

    @property
    def mutations(self) -> Mutations:
        """Successful changes so far."""
        return self._emulator.mutations

    def documents(self, bucket: str, scope: str = "_default", collection: str = "_default") -> dict[bytes, Document]:
        """See `Emulator.documents`."""
        return self.call(lambda emulator: emulator.documents(bucket, scope, collection))

    def create_bucket(self, name: str, *, quota_mib: int = 256, **settings: Any) -> None:
        """See `Emulator.create_bucket`."""
        self.call(lambda emulator: emulator.create_bucket(name, quota_mib=quota_mib, **settings))

    def create_collection(self, bucket: str, scope: str, collection: str, *, max_ttl_seconds: int = 0) -> None:
        """See `Emulator.create_collection`."""
        self.call(
            lambda emulator: emulator.create_collection(bucket, scope, collection, max_ttl_seconds=max_ttl_seconds)
        )

    def drop_collection(self, bucket: str, scope: str, collection: str) -> None:
        """See `Emulator.drop_collection`."""
        self.call(lambda emulator: emulator.drop_collection(bucket, scope, collection))

    def put_documents(
        self, bucket: str, scope: str, collection: str, documents: Mapping[bytes, tuple[bytes, int]]
    ) -> None:
        """See `Emulator.put_documents`."""
        self.call(lambda emulator: emulator.put_documents(bucket, scope, collection, documents))

    def create_user(self, username: str, password: str, roles: str) -> None:
        """See `Emulator.create_user`."""
        self.call(lambda emulator: emulator.create_user(username, password, roles))

    def move_vbuckets(self, steps: int = 1) -> None:
        """See `Emulator.move_vbuckets`."""
        self.call(lambda emulator: emulator.move_vbuckets(steps))

    def kill_node(self, index: int) -> None:
        """See `Emulator.kill_node`."""
        self.call(lambda emulator: emulator.kill_node(index))

    def revive_node(self, index: int) -> None:
        """See `Emulator.revive_node`."""
        self.run(lambda emulator: emulator.revive_node(index))

    def remove_node(self, index: int, *, close_sockets: bool = True) -> None:
        """See `Emulator.remove_node`."""
        self.call(lambda emulator: emulator.remove_node(index, close_sockets=close_sockets))

    def add_node(self, index: int | None = None) -> int:
        """See `Emulator.add_node`."""
        return self.run(lambda emulator: emulator.add_node(index))

    def restart(self, down_seconds: float = 0.0) -> None:
        """See `Emulator.restart`; returns when all nodes live again."""
        self.run(lambda emulator: emulator.restart(down_seconds))

    def set_alternate_address(self, index: int, hostname: str, ports: dict[str, int] | None = None) -> None:
        """See `Emulator.set_alternate_address`."""
        self.call(lambda emulator: emulator.set_alternate_address(index, hostname, ports))

    def advance_clock(self, seconds: float) -> None:
        """See `Emulator.advance_clock`."""
        self.call(lambda emulator: emulator.advance_clock(seconds))


@contextmanager
def running_emulator(options: EmulatorOptions | None = None, /, **keywords: Any) -> Iterator[RunningEmulator]:
    """Run an emulator in a thread until the block ends; keyword arguments are those of `EmulatorOptions`."""
    emulator = Emulator(options, **keywords) if options is None else Emulator(options)
    loop = new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="couchbase-emulator", daemon=True)
    thread.start()

    def carry_out(coroutine: Coroutine[Any, Any, Any]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, loop).result(_TIMEOUT_SECONDS)

    try:
        carry_out(emulator.__aenter__())
        try:
            yield RunningEmulator(emulator, loop)
        finally:
            carry_out(emulator.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_TIMEOUT_SECONDS)
        loop.close()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """The fastest event loop at hand: uvloop where it is installed."""
    try:
        import uvloop  # noqa: PLC0415 - optional
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
