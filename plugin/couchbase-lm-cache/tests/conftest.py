"""Set-up of all tests of this package: an emulated Couchbase, and adapters on it."""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.collection import Collection
from couchbase.options import ClusterOptions

from couchbase_lm_cache import connection
from e2e.couchbase_emulator.model.documents import Document
from e2e.couchbase_emulator.running import RunningEmulator, running_emulator

if TYPE_CHECKING:
    from lmcache_parts import Driver, L1Memory

# Before LMCache is imported by any test.
os.environ.setdefault("LMCACHE_TRACK_USAGE", "false")

# Machines that run several things at once make any per-example time limit flaky.
hypothesis.settings.register_profile("no-deadline", deadline=None)
hypothesis.settings.load_profile("no-deadline")

BUCKET, SCOPE = "cache", "tests"
USERNAME, PASSWORD = "lmcache", "adapter-password"
OpenAdapter = Callable[..., "Driver"]

_NEEDS_LMCACHE = re.compile(
    r"^\s*(?:from|import) (?:torch|lmcache|lmcache_parts|prometheus_client|observing|storage_managers)\b"
    r"|engine_cli|tests/live|open_adapter|create_adapter|couchbase_lm_cache\.(?:l2_adapter|connector)\b",
    re.MULTILINE,
)
collect_ignore = [
    path.name
    for path in sorted(Path(__file__).parent.glob("test_*.py"))
    if importlib.util.find_spec("lmcache") is None and _NEEDS_LMCACHE.search(path.read_text())
]
_numbers = itertools.count()


@dataclass(frozen=True)
class Place:
    """A collection of its own for one test."""

    emulator: RunningEmulator
    collection: str
    transport: str = "auto"

    @property
    def params(self) -> dict[str, Any]:
        """adapter_params that lead here."""
        return {
            "connection_string": self.emulator.connection_string,
            "username": USERNAME,
            "password": PASSWORD,
            "bucket_name": BUCKET,
            "scope_name": SCOPE,
            "collection_name": self.collection,
            "transport": self.transport,
        }

    def documents(self) -> dict[str, Document]:
        """What is stored here."""
        stored = self.emulator.documents(BUCKET, SCOPE, self.collection)
        return {name.decode(): document for name, document in stored.items()}

    def put(self, documents: Mapping[str, tuple[bytes, int]]) -> None:
        """Write documents, given as value and flags, behind the adapter's back."""
        self.emulator.put_documents(
            BUCKET, SCOPE, self.collection, {name.encode(): document for name, document in documents.items()}
        )


def pytest_report_header() -> list[str]:
    """Say what cannot be tested in an environment without LMCache."""
    return [f"LMCache is not installed: {len(collect_ignore)} files of tests are left out"] if collect_ignore else []


def prepare(emulator: RunningEmulator, quota_mib: int = 1024) -> None:
    """Create the bucket and a user who may read and write documents in it."""
    emulator.create_bucket(BUCKET, quota_mib=quota_mib)
    emulator.create_user(USERNAME, PASSWORD, f"data_reader[{BUCKET}],data_writer[{BUCKET}]")


@pytest.fixture(scope="session")
def emulator() -> Iterator[RunningEmulator]:
    with running_emulator() as emulator:
        prepare(emulator)
        yield emulator


@pytest.fixture(params=["direct", "sdk"])
def place(emulator: RunningEmulator, request: pytest.FixtureRequest) -> Iterator[Place]:
    """A place of its own, for either transport: what the adapter promises does not depend on it."""
    collection = f"c{next(_numbers)}"
    emulator.create_collection(BUCKET, SCOPE, collection)
    yield Place(emulator, collection, request.param)
    emulator.faults.clear()
    # What earlier tests left would fill the bucket, which then evicts what later ones have just stored.
    emulator.drop_collection(BUCKET, SCOPE, collection)


@pytest.fixture(params=["direct", "sdk"])
def own_place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A place on a server of its own that a test may kill; what it has stored survives, as on disk."""
    with running_emulator() as emulator:
        emulator.create_bucket(BUCKET, quota_mib=1024, bucket_type="membase")
        emulator.create_user(USERNAME, PASSWORD, f"data_reader[{BUCKET}],data_writer[{BUCKET}]")
        emulator.create_collection(BUCKET, SCOPE, "own")
        yield Place(emulator, "own", request.param)


@pytest.fixture
def open_own(own_place: Place) -> Iterator[OpenAdapter]:
    """Make adapters on a server of their own; parameters override those of its place."""
    from lmcache_parts import Driver, create_adapter

    drivers: list[Driver] = []

    def make(**overrides: Any) -> Driver:
        params = {name: value for name, value in (own_place.params | overrides).items() if value is not None}
        drivers.append(Driver(create_adapter(params)))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.adapter.close()


@pytest.fixture
def bucket(place: Place) -> Iterator[Collection]:
    """The test's collection through the SDK, to look at and change documents."""
    options = ClusterOptions(PasswordAuthenticator(USERNAME, PASSWORD))
    cluster = Cluster.connect(place.emulator.connection_string, options)
    yield cluster.bucket(BUCKET).scope(SCOPE).collection(place.collection)
    cluster.close()


@pytest.fixture
def l1() -> Iterator[L1Memory]:
    from lmcache_parts import L1Memory

    memory = L1Memory()
    yield memory
    memory.close()


@pytest.fixture
def open_adapter(place: Place) -> Iterator[OpenAdapter]:
    """Make adapters on the test's collection; parameters override its own."""
    from lmcache_parts import Driver, create_adapter

    drivers: list[Driver] = []

    def make(**overrides: Any) -> Driver:
        params = {name: value for name, value in (place.params | overrides).items() if value is not None}
        driver = Driver(create_adapter(params))
        drivers.append(driver)
        return driver

    yield make
    for driver in drivers:
        driver.adapter.close()


@pytest.fixture
def eager_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the connection look around ten times as often, so that what it notices is noticed soon."""
    for name in ("PROBE_INTERVAL_SECONDS", "_OUTAGE_PROBE_INTERVAL_SECONDS"):
        monkeypatch.setattr(connection, name, getattr(connection, name) / 10)


@pytest.fixture
def driver(open_adapter: OpenAdapter) -> Driver:
    return open_adapter()
