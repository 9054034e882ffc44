"""A transport that counts and times every call of another one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from couchbase_lm_cache.transport import Age, Document, Outcome, ShardRead, ShardWrite

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from couchbase_lm_cache.metrics import AdapterMetrics
    from couchbase_lm_cache.transport import Transport

_Result = TypeVar("_Result")


class MeteredTransport:
    """See :class:`couchbase_lm_cache.transport.Transport`.

    Args:
        inner: does the work.
        metrics: learns of every call.
    """

    def __init__(self, inner: Transport, metrics: AdapterMetrics) -> None:
        self._inner = inner
        self._metrics = metrics

    @property
    def name(self) -> str:
        """Which transport this is."""
        return self._inner.name

    @property
    def notice(self) -> str:
        """Why it is not the one that was wished for."""
        return self._inner.notice

    def read(self, keys: Sequence[str], timeout_seconds: float, *, is_patient: bool = True) -> list[Document]:
        """Read whole documents."""
        documents = self._timed(
            "read", lambda: self._inner.read(keys, timeout_seconds, is_patient=is_patient), _outcomes_of_documents
        )
        self._metrics.received(sum(len(document.content) for document in documents))
        return documents

    def read_into(self, reads: Sequence[ShardRead], timeout_seconds: float) -> list[Outcome]:
        """Read documents into L1 memory."""
        outcomes = self._timed("read_into", lambda: self._inner.read_into(reads, timeout_seconds), list)
        self._metrics.received(_bytes_of(reads, outcomes))
        return outcomes

    def write(
        self, writes: Sequence[ShardWrite], ttl_seconds: int, timeout_seconds: float, *, is_patient: bool = True
    ) -> list[Outcome]:
        """Write binary documents from L1 memory."""
        outcomes = self._timed(
            "write", lambda: self._inner.write(writes, ttl_seconds, timeout_seconds, is_patient=is_patient), list
        )
        self._metrics.sent(_bytes_of(writes, outcomes))
        return outcomes

    def write_json(
        self,
        documents: Sequence[tuple[str, bytes]],
        ttl_seconds: int,
        timeout_seconds: float,
        *,
        is_patient: bool = True,
    ) -> list[Outcome]:
        """Write JSON documents."""
        outcomes = self._timed(
            "write_json",
            lambda: self._inner.write_json(documents, ttl_seconds, timeout_seconds, is_patient=is_patient),
            list,
        )
        written = zip(documents, outcomes, strict=True)
        self._metrics.sent(sum(len(content) for (_, content), outcome in written if outcome is Outcome.OK))
        return outcomes

    def exists(self, keys: Sequence[str], timeout_seconds: float) -> list[Outcome]:
        """Say OK or MISSING for each key."""
        return self._timed("exists", lambda: self._inner.exists(keys, timeout_seconds), list)

    def probe(self, timeout_seconds: float) -> list[Outcome]:
        """Ask every data node."""
        return self._timed("probe", lambda: self._inner.probe(timeout_seconds), list)

    def age(self, key: str, timeout_seconds: float) -> Age:
        """Read a document together with the time it has left."""
        age = self._timed("age", lambda: self._inner.age(key, timeout_seconds), lambda age: [age.document.outcome])
        self._metrics.received(len(age.document.content))
        return age

    def touch(self, keys: Sequence[str], ttl_seconds: int, timeout_seconds: float) -> list[Outcome]:
        """Give documents a new lifetime."""
        return self._timed("touch", lambda: self._inner.touch(keys, ttl_seconds, timeout_seconds), list)

    def remove(
        self, keys: Sequence[str], timeout_seconds: float, cas: int = 0, *, is_patient: bool = True
    ) -> list[Outcome]:
        """Remove documents; with ``cas``, only the version that was read."""
        return self._timed(
            "remove", lambda: self._inner.remove(keys, timeout_seconds, cas, is_patient=is_patient), list
        )

    def close(self) -> None:
        """Disconnect."""
        self._inner.close()

    def _timed(
        self, operation: str, call: Callable[[], _Result], outcomes: Callable[[_Result], Sequence[Outcome]]
    ) -> _Result:
        began = time.monotonic()
        result = call()
        self._metrics.called(operation, outcomes(result), time.monotonic() - began)
        return result


def _outcomes_of_documents(documents: Sequence[Document]) -> list[Outcome]:
    return [document.outcome for document in documents]


def _bytes_of(parts: Sequence[ShardRead | ShardWrite], outcomes: Sequence[Outcome]) -> int:
    return sum(part.end - part.start for part, outcome in zip(parts, outcomes, strict=True) if outcome is Outcome.OK)
