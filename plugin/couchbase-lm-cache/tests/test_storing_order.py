"""A manifest is written when all shards of its object are there, and never otherwise, whichever thread is faster.

The order of threads cannot be chosen with real workers, so these run each step to its end before the next; the
transport is a dictionary that refuses what it is told to.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import pytest

from couchbase_lm_cache.buffers import GuardedBuffer
from couchbase_lm_cache.settings import CouchbaseLMCacheConfig
from couchbase_lm_cache.storing import ObjectStore, Storer
from couchbase_lm_cache.tallies import Tallies
from couchbase_lm_cache.tasks import DeadlineWatch, Task
from couchbase_lm_cache.transport import Document, Outcome, ShardWrite

MIB = 1024 * 1024


class Documents:
    """What a transport does for stores, in memory."""

    def __init__(self, refused: str, put_off: Outcome | None = None) -> None:
        self.refused = refused
        self.manifests: list[str] = []
        self._put_off = put_off
        self._asked: set[tuple[str, str]] = set()

    def _first(self, operation: str, key: str) -> Outcome | None:
        """What a document is answered that is asked for the first time, if not what it is answered later."""
        is_first = (operation, key) not in self._asked
        self._asked.add((operation, key))
        return self._put_off if is_first else None

    def read(self, keys: Sequence[str], _timeout_seconds: float, *, is_patient: bool) -> list[Document]:
        assert not is_patient, "a thread of the stores waits"
        return [Document(self._first("read", key) or Outcome.MISSING) for key in keys]

    def remove(self, keys: Sequence[str], _timeout_seconds: float, *, is_patient: bool) -> list[Outcome]:
        assert not is_patient
        return [Outcome.MISSING] * len(keys)

    def write(
        self, writes: Sequence[ShardWrite], _ttl_seconds: int, _timeout_seconds: float, *, is_patient: bool
    ) -> list[Outcome]:
        assert not is_patient
        return [
            self._first("write", write.key) or (Outcome.REFUSED if self.refused in write.key else Outcome.OK)
            for write in writes
        ]

    def write_json(
        self, documents: Sequence[tuple[str, bytes]], _ttl_seconds: int, _timeout_seconds: float, *, is_patient: bool
    ) -> list[Outcome]:
        assert not is_patient
        outcomes = [self._first("write", key) or Outcome.OK for key, _ in documents]
        written = zip(documents, outcomes, strict=True)
        self.manifests += [key for (key, _), outcome in written if outcome is Outcome.OK]
        return outcomes


class Connected:
    """A connection that is always there."""

    call_timeout_seconds = 5.0
    is_partial = False
    outage_began = None

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def transport(self) -> Documents:
        return self._documents

    def note(self, *_: object) -> None:
        """Take a result; nothing depends on it here."""

    note_write = note


class AtOnce:
    """Workers that have ended a step before its submitter goes on."""

    def submit(self, _task: object, step: Callable[[], None]) -> None:
        thread = threading.Thread(target=step)
        thread.start()
        thread.join()

    def put_off(self, task: object, step: Callable[[], None], _delay_seconds: float) -> None:
        self.submit(task, step)


class Recent:
    def hit(self, _key: str) -> None:
        """Nothing is remembered."""

    stored = hit


@pytest.mark.parametrize("put_off", [None, Outcome.BUSY, Outcome.CONGESTED, Outcome.LATE, Outcome.UNREACHABLE])
@pytest.mark.parametrize("checksum", ["none", "xxh3"])
@pytest.mark.parametrize(("refused", "kept"), [("second::shard::1", {"first", "third"}), ("no such key", None)])
def test_only_whole_objects_get_a_manifest_and_one_alone(
    checksum: str, refused: str, kept: set[str] | None, put_off: Outcome | None
) -> None:
    params = {"connection_string": "couchbase://h", "bucket_name": "b", "username": "u", "password": "p"}
    params |= {"checksum": checksum, "shard_size_bytes": 8 * MIB}  # type: ignore[dict-item]
    settings = CouchbaseLMCacheConfig.from_dict(params, environ={})
    documents = Documents(refused, put_off)
    stores = [
        ObjectStore(name, GuardedBuffer(memoryview(bytearray(size))), "layout")
        for name, size in (("first", 9 * MIB), ("second", 12 * MIB), ("third", 9 * MIB))
    ]
    results: list[object] = []
    task = Task(
        time.monotonic() + 5, [store.buffer for store in stores], lambda: None, lambda *_: results.append(object())
    )
    watch = DeadlineWatch()
    watch.add(task)
    storer = Storer(settings, Connected(documents), AtOnce(), Recent(), Tallies(None))  # type: ignore[arg-type]

    storer.start(task, stores)

    assert task.ended.wait(2), "the task ends when its last object is settled, not at its deadline"
    assert sorted(documents.manifests) == sorted(kept or {"first", "second", "third"})
    assert {store.key for store in stores if store.is_stored} == set(documents.manifests)
    watch.close()
