"""Steps of a store that are repeated: what has become useless is not, and a node that is gone is given up in time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace

import pytest

from couchbase_lm_cache import insisting, sdk_limits
from couchbase_lm_cache.buffers import GuardedBuffer
from couchbase_lm_cache.sdk_limits import ShortLimit
from couchbase_lm_cache.settings import CouchbaseLMCacheConfig
from couchbase_lm_cache.sharding import Manifest
from couchbase_lm_cache.storing import ObjectStore, Storer
from couchbase_lm_cache.tallies import Tallies
from couchbase_lm_cache.tasks import DeadlineWatch, Task
from couchbase_lm_cache.transport import Document, Outcome, ShardWrite
from couchbase_lm_cache.workers import WorkerPool

MIB = 1024 * 1024
SHARDS = 2
TASK_SECONDS = 20.0


class Server:
    """What a transport tells, by a rule for each operation and key; counts what is asked."""

    call_timeout_seconds = 5.0
    is_partial = False
    outage_began: float | None = None

    def __init__(self, rule: Callable[[str, str], Outcome]) -> None:
        self.asked: Counter[tuple[str, str]] = Counter()
        self._rule = rule

    def transport(self) -> Server:
        return self

    def note(self, *_: object) -> None:
        """Take a result; nothing depends on it here."""

    note_write = note

    def _tell(self, operation: str, key: str) -> Outcome:
        self.asked[operation, key] += 1
        return self._rule(operation, key)

    def read(self, keys: Sequence[str], *_: object, **_options: bool) -> list[Document]:
        """Tell of manifests that must go before anything is overwritten: they have no checksums."""
        manifest = Manifest(SHARDS, SHARDS * MIB).to_json()
        return [
            Document(outcome, manifest, is_json=True) if outcome is Outcome.OK else Document(outcome)
            for outcome in (self._tell("read", key) for key in keys)
        ]

    def remove(self, keys: Sequence[str], *_: object, **_options: bool) -> list[Outcome]:
        return [self._tell("remove", key) for key in keys]

    def write(self, writes: Sequence[ShardWrite], *_: object, **_options: bool) -> list[Outcome]:
        return [self._tell("write", write.key) for write in writes]

    def write_json(self, documents: Sequence[tuple[str, bytes]], *_: object, **_options: bool) -> list[Outcome]:
        return [self._tell("manifest", key) for key, _ in documents]


class Recent:
    def hit(self, _keys: Sequence[str]) -> None:
        """Nothing is remembered."""

    stored = hit


@pytest.fixture
def workers() -> Iterator[WorkerPool]:
    pool = WorkerPool("test", 2)
    yield pool
    pool.close(1.0)


@pytest.fixture
def watch() -> Iterator[DeadlineWatch]:
    watch = DeadlineWatch()
    yield watch
    watch.close()


def store(server: Server, workers: WorkerPool, watch: DeadlineWatch) -> tuple[ObjectStore, float]:
    """Store one object and say how long its task took."""
    params = {"connection_string": "couchbase://h", "bucket_name": "b", "username": "u", "password": "p"}
    settings = CouchbaseLMCacheConfig.from_dict(params | {"shard_size_bytes": MIB}, environ={})
    item = ObjectStore("key", GuardedBuffer(memoryview(bytearray(SHARDS * MIB))), "layout")
    begun = time.monotonic()
    task = Task(begun + TASK_SECONDS, [item.buffer], lambda: None, lambda *_: None)
    watch.add(task)
    Storer(settings, server, workers, Recent(), Tallies(None)).start(task, [item])  # type: ignore[arg-type]
    assert task.ended.wait(TASK_SECONDS + 1)
    return item, time.monotonic() - begun


def test_what_is_put_off_of_an_object_that_has_failed_is_not_sent_again(
    workers: WorkerPool, watch: DeadlineWatch
) -> None:
    def rule(operation: str, key: str) -> Outcome:
        if operation != "write":
            return Outcome.MISSING
        return Outcome.REFUSED if key.endswith("::1") else Outcome.BUSY

    server = Server(rule)
    item, seconds = store(server, workers, watch)
    assert seconds < TASK_SECONDS / 4, "its memory stays locked though it cannot be stored any more"
    assert (item.is_stored, item.failure) == (False, Outcome.REFUSED)
    assert server.asked["write", "key::shard::0"] <= 2
    assert not server.asked["manifest", "key"]


@pytest.mark.parametrize("comes_back_for", [(), ("remove",), ("remove", "write")])
def test_a_node_that_comes_and_goes_is_given_up_as_soon_as_one_that_is_gone(
    workers: WorkerPool, watch: DeadlineWatch, comes_back_for: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps of one object share their patience; the pause before the last attempt comes on top."""
    monkeypatch.setattr(insisting, "PATIENCE_SECONDS", 2.0)
    first: dict[str, float] = {}

    def rule(operation: str, _key: str) -> Outcome:
        if operation == "read":
            return Outcome.OK
        since = time.monotonic() - first.setdefault(operation, time.monotonic())
        return Outcome.OK if operation in comes_back_for and since > 1.2 else Outcome.UNREACHABLE

    server = Server(rule)
    item, seconds = store(server, workers, watch)
    assert not item.is_stored
    assert server.asked["write", "key::shard::0"] == 0 or "remove" in comes_back_for
    assert seconds < 4


@pytest.mark.parametrize(("back_after_seconds", "is_stored"), [(1.0, True), (60.0, False)])
def test_while_one_node_is_down_another_may_be_out_of_reach_for_a_moment(
    workers: WorkerPool, watch: DeadlineWatch, back_after_seconds: float, *, is_stored: bool
) -> None:
    begun = time.monotonic()

    def rule(operation: str, _key: str) -> Outcome:
        is_back = operation == "read" or time.monotonic() - begun > back_after_seconds
        return Outcome.OK if is_back else Outcome.UNREACHABLE

    server = Server(rule)
    server.is_partial, server.outage_began = True, begun - 2 * insisting.PATIENCE_SECONDS
    item, seconds = store(server, workers, watch)
    assert item.is_stored == is_stored
    assert seconds < insisting.PATIENCE_SECONDS / 2


def test_a_short_limit_lasts_while_servers_refuse_and_grows_where_it_is_too_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr(sdk_limits, "time", SimpleNamespace(monotonic=lambda: now))
    limit = ShortLimit()
    limit.learn(5.0, [Outcome.TIMEOUT, Outcome.OK])
    assert limit.of(5.0) == 5.0, "a timeout alone is no refusal"
    limit.learn(5.0, [Outcome.BUSY, Outcome.OK])
    short = limit.of(5.0)
    assert short < 1.0
    assert limit.of(0.1) == 0.1
    limit.learn(short, [Outcome.BUSY, Outcome.TIMEOUT])
    assert limit.of(5.0) == 2 * short
    limit.learn(short, [Outcome.TIMEOUT])
    assert limit.of(5.0) == 2 * short, "that call had another limit"
    for _ in range(10):
        limit.learn(limit.of(5.0), [Outcome.TIMEOUT])
    assert limit.of(5.0) == 5.0
    now += 60.0
    assert limit.of(5.0) == 5.0
    limit.learn(5.0, [Outcome.BUSY])
    assert limit.of(5.0) == short
