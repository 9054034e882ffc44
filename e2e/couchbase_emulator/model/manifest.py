"""Scopes and collections of a bucket and the manifest that names them."""

import re
from dataclasses import dataclass, field
from typing import Any

DEFAULT = "_default"
SYSTEM = "_system"
# `_system` takes the first identifiers a new bucket hands out (7.6 and later).
_FIRST_UID = 8
_NAME = re.compile(r"[A-Za-z0-9-][A-Za-z0-9_%-]{0,250}")


def name_problem(name: str) -> str | None:
    """What is wrong with the name of a scope or collection, or None."""
    if _NAME.fullmatch(name):
        return None
    if not 1 <= len(name) <= 251:
        return "Length must be in range from 1 to 251"
    if name[0] in "_%":
        return "First character must not be _ or %"
    return "Can only contain characters A-Z, a-z, 0-9 and the following symbols _ - %"


@dataclass
class Collection:
    """A collection; `max_ttl_seconds` 0 = the bucket's, -1 = never."""

    name: str
    uid: int
    max_ttl_seconds: int = 0


@dataclass
class Scope:
    """A scope and its collections by name."""

    name: str
    uid: int
    collections: dict[str, Collection] = field(default_factory=dict)


class Manifest:
    """Current scopes and collections; `uid` grows with every change."""

    def __init__(self) -> None:
        self.uid = 1
        self._next_uid = _FIRST_UID
        default = Scope(DEFAULT, 0, {DEFAULT: Collection(DEFAULT, 0)})
        self.scopes: dict[str, Scope] = {DEFAULT: default}
        self.by_id: dict[int, tuple[Scope, Collection]] = {0: (default, default.collections[DEFAULT])}
        system = Scope(SYSTEM, _FIRST_UID)
        self.scopes[SYSTEM] = system
        for name in ("_mobile", "_query"):
            self._register(system, name, 0)

    def add_scope(self, name: str) -> None:
        """Add an empty scope."""
        self.scopes[name] = Scope(name, self._take_uid())
        self.uid += 1

    def add_collection(self, scope: Scope, name: str, max_ttl_seconds: int = 0) -> None:
        """Add a collection to a scope."""
        self._register(scope, name, max_ttl_seconds)
        self.uid += 1

    def drop_collection(self, scope: Scope, name: str) -> Collection:
        """Remove a collection; raises KeyError when it is not there."""
        collection = scope.collections.pop(name)
        del self.by_id[collection.uid]
        self.uid += 1
        return collection

    def drop_scope(self, name: str) -> list[Collection]:
        """Remove a scope and its collections; raises KeyError when it is not there."""
        scope = self.scopes.pop(name)
        for collection in scope.collections.values():
            del self.by_id[collection.uid]
        self.uid += 1
        return list(scope.collections.values())

    def find(self, scope: str, collection: str) -> Collection | None:
        """The collection of that name, or None."""
        found = self.scopes.get(scope)
        return found.collections.get(collection) if found else None

    def as_json(self) -> dict[str, Any]:
        """The manifest as REST and key-value clients get it: identifiers in hexadecimal."""
        return {
            "uid": f"{self.uid:x}",
            "scopes": [
                {
                    "name": scope.name,
                    "uid": f"{scope.uid:x}",
                    "collections": [
                        {"name": item.name, "uid": f"{item.uid:x}", "maxTTL": item.max_ttl_seconds, "history": False}
                        for item in scope.collections.values()
                    ],
                }
                for scope in self.scopes.values()
            ],
        }

    def _register(self, scope: Scope, name: str, max_ttl_seconds: int) -> None:
        collection = Collection(name, self._take_uid(), max_ttl_seconds)
        scope.collections[name] = collection
        self.by_id[collection.uid] = (scope, collection)

    def _take_uid(self) -> int:
        self._next_uid += 1
        return self._next_uid - 1
