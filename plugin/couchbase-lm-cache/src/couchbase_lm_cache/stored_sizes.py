"""What this server knows to be stored by it, so that nothing is counted twice or taken off twice."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

_Key = TypeVar("_Key", bound="Hashable")


class StoredSizes(Generic[_Key]):
    """Sizes of stored objects, by the 64-bit hash of their key; safe to use from many threads.

    It holds about 150 bytes per object, and only what this process stored: documents that expire, or that
    another server removes, stay in it until they are stored or deleted again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sizes: dict[int, int] = {}

    def add(self, keys: Sequence[_Key], sizes: Sequence[int]) -> list[bool]:
        """Note stored objects; says for each whether it is a new one."""
        with self._lock:
            return [self._add(hash(key), size) for key, size in zip(keys, sizes, strict=True)]

    def take(self, keys: Iterable[_Key]) -> list[int]:
        """Forget objects; returns for each the size it was noted with, 0 when it was not."""
        with self._lock:
            return [self._sizes.pop(hash(key), 0) for key in keys]

    def _add(self, name: int, size: int) -> bool:
        is_new = name not in self._sizes
        # The first size stays: it is the one that was counted, and must be the one that is taken off.
        self._sizes.setdefault(name, size)
        return is_new
