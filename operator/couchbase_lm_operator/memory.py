"""What the running operator remembers of each resource between passes.

Nothing here must survive a restart: it only saves work (echoes of own writes), spaces out retries, and
hands results of the patrol to the next pass.
"""

from __future__ import annotations

import math
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from couchbase_lm_operator.metrics import CACHE_HEALTHY

if TYPE_CHECKING:
    from couchbase_lm_operator.core.couchbase.provisioning_steps import Step
    from couchbase_lm_operator.core.observed import Manifest
    from couchbase_lm_operator.core.progress import CacheHealth, Provisioned
    from couchbase_lm_operator.io.couchbase.cluster import CouchbaseCluster
    from couchbase_lm_operator.visits import Visit
    from couchbase_lm_operator.work_queue import Key

_OWN_VERSIONS = 16
# unlike every version, so the next look at references takes the real one
_MADE = "made"


@dataclass(frozen=True)
class Refused:
    """A refusal as it was told, with what was asked and with the kinds of the steps that were to be executed."""

    couchbase: CouchbaseCluster
    steps: frozenset[type[Step]]
    told: Provisioned


@dataclass
class Memory:
    """One resource, ``key``.

    ``seen_version`` is the newest resource version that an event told or a write of ours returned, ``own_versions``
    are the last that writes of ours returned: a pass writes more than once, and each write comes back as an event.
    ``finalizers`` are those of the newest body read; ``is_lost`` says that it was told that the operator has no
    rights on the resource any more.
    ``troubled_since`` is the monotonic time since which passes end in waiting or failure, ``unseen_since`` that
    since which pods serve without having told what they store.
    ``uid`` is that of the resource all the rest is about.
    ``visit`` is what Couchbase is being asked, ``provisioned`` what was told last of how far it came, with what was
    asked. ``refused`` is the last refusal of a write, while nothing else came of the same ones.
    ``creation_refused_at`` is the time of the event loop at which Couchbase refused to create the bucket.
    ``cache`` is the last probe, ``cache_failures`` how many failed in a row. ``references`` are the
    versions of the objects that the spec names. ``tombstone`` is the last body of a resource that is gone,
    ``removing_since`` the monotonic time of the first try to remove what it left.
    """

    key: Key
    uid: str = ""
    seen_version: str = ""
    own_versions: deque[str] = field(default_factory=lambda: deque(maxlen=_OWN_VERSIONS))
    finalizers: tuple[str, ...] = ()
    is_lost: bool = False
    generation: int = 0
    troubled_since: float | None = None
    unseen_since: float | None = None
    visit: Visit | None = None
    creation_refused_at: float = -math.inf
    provisioned: tuple[CouchbaseCluster, Provisioned] | None = None
    refused: Refused | None = None
    couchbase: CouchbaseCluster | None = None
    cache: CacheHealth | None = None
    cache_failures: int = 0
    references: dict[tuple[str, str], str] = field(default_factory=dict)
    tombstone: Manifest | None = None
    removing_since: float | None = None

    def note_uid(self, uid: str) -> None:
        """Forget what is known of an earlier resource of this name when another one took its place."""
        if self.uid and self.uid != uid:
            self.give_up_look()
            self.generation, self.troubled_since, self.unseen_since = 0, None, None
            self.provisioned = self.refused = self.couchbase = None
            self.creation_refused_at, self.cache_failures, self.references = -math.inf, 0, {}
            self.note_cache(None)
            if self.visit is not None:
                self.visit = replace(self.visit, is_orphan=True)
        self.uid = uid

    def give_up_look(self) -> None:
        """Give up the visit under way if it only looks."""
        if self.visit is not None and self.visit.decision is None:
            self.visit.task.cancel()
            self.visit = None

    def probe(self, couchbase: CouchbaseCluster) -> None:
        """Let probes look at this cluster from now on; a probe under way goes on when nothing differs."""
        if self.couchbase is None:
            self.note_cache(None)  # what was told while nobody could look
        if self.couchbase != couchbase:
            self.couchbase = couchbase

    def note_cache(self, health: CacheHealth | None) -> None:
        """Keep what is known of the cache now, and let the metric say the same: nothing where nothing is known."""
        self.cache = health
        labels = (self.key.namespace, self.key.name)
        if health is not None and health.is_healthy is not None:
            CACHE_HEALTHY.labels(*labels).set(float(health.is_healthy))
            return
        with suppress(KeyError):
            CACHE_HEALTHY.remove(*labels)

    def note_made(self, kind: str, name: str) -> None:
        """Note that an object that was missing when the pass began is there: should it go, that is a change."""
        if self.references.get((kind, name)) == "":
            self.references[kind, name] = _MADE


class Memories:
    """All resources that are looked after."""

    def __init__(self) -> None:
        self._by_key: dict[Key, Memory] = {}

    def of(self, key: Key) -> Memory:
        """Return the memory of a resource, new when there was none."""
        return self._by_key.setdefault(key, Memory(key))

    def forget(self, key: Key) -> None:
        """Drop a resource that is gone, and what metrics said of it."""
        memory = self._by_key.pop(key, None)
        if memory is not None:
            memory.note_cache(None)

    def items(self) -> list[tuple[Key, Memory]]:
        """Return a snapshot."""
        return list(self._by_key.items())

    def __len__(self) -> int:
        return len(self._by_key)
