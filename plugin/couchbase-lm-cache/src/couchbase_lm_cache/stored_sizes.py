"""What this server knows to be stored by it, so that nothing is counted twice or taken off twice."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

_Key = TypeVar("_Key", bound="Hashable")

_REMEMBERED_OBJECTS = 65_536


class StoredSizes(Generic[_Key]):
    """Sizes of stored objects, by the 64-bit hash of their key; safe to use from many threads.

    It holds only what this process stored: documents that expire, or that another server removes, stay in it
    until they are stored or deleted again, or forgotten. Keys seldom come back, so it must forget: an object
    that is stored again after that is a new one, and its first size stays counted.

    Args:
        remembered: so many objects that were stored last are known for sure, and never more than twice as
            many; each takes about 110 bytes.
    """

    def __init__(self, remembered: int = _REMEMBERED_OBJECTS) -> None:
        self._remembered = remembered
        self._lock = threading.Lock()
        # Two generations instead of an order of use: less than half the memory of an ordered dictionary.
        self._recent: dict[int, int] = {}
        self._older: dict[int, int] = {}

    def add(self, keys: Sequence[_Key], sizes: Sequence[int]) -> list[bool]:
        """Note stored objects; says for each whether it is a new one."""
        with self._lock:
            return [self._add(hash(key), size) for key, size in zip(keys, sizes, strict=True)]

    def take(self, keys: Iterable[_Key]) -> list[int]:
        """Forget objects; returns for each the size it was noted with, 0 when it is not known."""
        with self._lock:
            return [self._pop(hash(key)) or 0 for key in keys]

    def _add(self, name: int, size: int) -> bool:
        counted = self._pop(name)
        if len(self._recent) >= self._remembered:
            self._older, self._recent = self._recent, {}
        # The first size stays: it is the one that was counted, and must be the one that is taken off.
        self._recent[name] = size if counted is None else counted
        return counted is None

    def _pop(self, name: int) -> int | None:
        size = self._recent.pop(name, None)
        return self._older.pop(name, None) if size is None else size
