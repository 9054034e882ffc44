"""Fixtures around a running emulator."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import httpx
import pytest

from e2e.conformance.wire import WireClient
from e2e.couchbase_emulator import RunningEmulator, running_emulator

Start = Callable[..., RunningEmulator]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start emulators with given options; they stop at the end of the test."""
    with ExitStack() as stack:

        def begin(**options: Any) -> RunningEmulator:
            return stack.enter_context(running_emulator(**options))

        yield begin


@pytest.fixture
def emulator(start: Start) -> RunningEmulator:
    """One node with a bucket, a collection, and a user with rights on it."""
    running = start()
    running.create_bucket("cache", quota_mib=100)
    running.create_collection("cache", "kv", "shards")
    running.create_user("app", "app-password", "data_reader[cache:kv:shards],data_writer[cache:kv:shards]")
    return running


@pytest.fixture
def http(emulator: RunningEmulator) -> Iterator[httpx.Client]:
    """REST of the first node as administrator."""
    with rest(emulator) as client:
        yield client


def rest(emulator: RunningEmulator, node: int = 0) -> httpx.Client:
    """REST of a node as administrator."""
    auth = (emulator.admin_username, emulator.admin_password)
    return httpx.Client(base_url=emulator.management_urls[node], auth=auth, timeout=10)


def kv_port(emulator: RunningEmulator, node: int = 0) -> int:
    """Data port of a node."""
    return emulator.call(lambda running: running.cluster.nodes[node].kv_port)


class Wire(AbstractContextManager["WireClient"]):
    """A logged-in connection to a node with a collection open."""

    def __init__(
        self,
        emulator: RunningEmulator,
        username: str = "app",
        password: str = "app-password",
        *,
        node: int = 0,
        place: tuple[str, str, str] = ("cache", "kv", "shards"),
    ) -> None:
        self._client = WireClient("127.0.0.1", kv_port(emulator, node), timeout_seconds=5)
        self._client.hello()
        assert self._client.login(username, password) == 0
        assert self._client.open_collection(*place) == 0

    def __enter__(self) -> WireClient:
        return self._client

    def __exit__(self, *details: object) -> None:
        self._client.close()
