"""Which load an unlock is about.

LMCache looks keys up, loads what it wants of them, and unlocks them when it is done with them: after a
load, instead of one, and, before it takes the memory back, for a load it gave up. Only the last must end
loads under way. But two requests with a common prefix look up equal keys, and the one that comes second
unlocks them without loading while the first is still loading. Ending that load would cost both requests
their cache. LMCache passes the same key *objects* to lookup, load and unlock of one request, so the
objects' identity tells whose unlock it is. Wherever identity says nothing, the load ends.
"""

from __future__ import annotations

import collections
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from couchbase_lm_cache.buffers import GuardedBuffer

Key = TypeVar("Key")

_REMEMBERED_LEASES = 50_000


@dataclass(frozen=True, eq=False)
class LoadLease(Generic[Key]):
    """One object being loaded.

    Attributes:
        key: the caller's key object.
        buffer: the memory it goes to.
        is_known: whether the same key object was looked up before.
    """

    key: Key
    buffer: GuardedBuffer
    is_known: bool


class Leases(Generic[Key]):
    """Key objects between lookup and unlock, and the loads under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Keeps the objects alive, so that no other object can get their identity.
        self._looked_up: collections.OrderedDict[int, Key] = collections.OrderedDict()
        self._loads: dict[Key, list[LoadLease[Key]]] = {}

    def found(self, keys: Iterable[Key]) -> None:
        """Remember key objects whose lookup was a hit. Callers that never unlock are forgotten in time."""
        with self._lock:
            for key in keys:
                self._looked_up[id(key)] = key
            while len(self._looked_up) > _REMEMBERED_LEASES:
                self._looked_up.popitem(last=False)

    def loading(self, key: Key, buffer: GuardedBuffer) -> LoadLease[Key]:
        """Register a load under way."""
        with self._lock:
            lease = LoadLease(key, buffer, id(key) in self._looked_up)
            self._loads.setdefault(key, []).append(lease)
            return lease

    def ended(self, leases: Iterable[LoadLease[Key]]) -> None:
        """Forget loads that are no longer under way."""
        with self._lock:
            for lease in leases:
                same_key = self._loads.get(lease.key, [])
                if lease in same_key:
                    same_key.remove(lease)
                if not same_key:
                    self._loads.pop(lease.key, None)

    def unlock(self, keys: Iterable[Key]) -> None:
        """Revoke the memory of every load that may be meant; no access to it is under way afterwards."""
        meant: list[GuardedBuffer] = []
        with self._lock:
            for key in keys:
                other_request = self._looked_up.pop(id(key), None) is not None
                meant.extend(
                    lease.buffer
                    for lease in self._loads.get(key, ())
                    if lease.key is key or not lease.is_known or not other_request
                )
        for buffer in meant:
            buffer.revoke()
