"""What the operator does by the clock, with reads only: compare, look at references, probe the cache.

Each round may wake a resource; it changes nothing itself. A round that fails is told and repeated.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from couchbase_lm_operator.core.progress import HEALTHY, CacheHealth
from couchbase_lm_operator.errors import ClusterError
from couchbase_lm_operator.io import references
from couchbase_lm_operator.io.namespaces import resources_of
from couchbase_lm_operator.work_queue import Key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from couchbase_lm_operator.core.couchbase_state import LoginState
    from couchbase_lm_operator.io.cluster import Cluster
    from couchbase_lm_operator.memory import Memories, Memory
    from couchbase_lm_operator.work_queue import WorkQueue

logger = logging.getLogger(__name__)

PROBES_PER_CLUSTER = 8
# one lost probe may be a lost packet; two in a row are news
_FAILURES_UNTIL_UNHEALTHY = 2


@dataclass(frozen=True)
class Patrol:
    """The rounds; ``on_life(name)`` is called after each, and after each probe."""

    cluster: Cluster
    namespaces: tuple[str, ...]
    queue: WorkQueue
    memories: Memories
    on_life: Callable[[str], None]
    _lost: set[str] = field(init=False, default_factory=set)

    async def every(self, seconds: float, name: str, round_: Callable[[], Awaitable[None]]) -> None:
        """Run a round again and again, ``seconds`` apart, until cancelled."""
        while True:
            try:
                await round_()
                self.on_life(name)
            except ClusterError as error:
                logger.info("round failed, will repeat", extra={"round": name, "problem": str(error)})
            await asyncio.sleep(seconds)

    async def sweep(self) -> None:
        """Wake every resource whose version no event has told: a watch that went deaf is noticed here."""
        resources, lost = await resources_of(self.cluster, self.namespaces)
        for resource in resources:
            metadata = resource["metadata"]
            key = Key(metadata["namespace"], metadata["name"])
            if self.memories.of(key).seen_version != metadata["resourceVersion"]:
                self.queue.add(key)
        self._tell_lost(lost)

    def _tell_lost(self, lost: frozenset[str]) -> None:
        """Tell once that a watched namespace cannot be read, and once that it can again."""
        for namespace in sorted(lost - self._lost):
            told = "a watched namespace is gone or gives the operator no rights: nothing there is looked after"
            logger.warning(told, extra={"namespace": namespace})
        for namespace in sorted(self._lost - lost):
            logger.info("a watched namespace can be read again", extra={"namespace": namespace})
        self._lost.clear()
        self._lost.update(lost)

    async def look_at_references(self) -> None:
        """Wake every resource one of whose Secrets or ConfigMaps appeared, changed or went."""
        for key, memory in self.memories.items():
            for kind, name in sorted(memory.references):
                version = await references.version(self.cluster, kind, key.namespace, name)
                if memory.references.get((kind, name), version) != version:
                    memory.references[kind, name] = version
                    memory.troubled_since = None
                    self.queue.add(key)

    async def probe_caches(self) -> None:
        """Log in at Couchbase as each resource's engines do, a few at a time on one cluster."""
        slots: dict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(PROBES_PER_CLUSTER))
        await asyncio.gather(
            *(
                self._probe(key, memory, slots[memory.couchbase.goal.connection_string])
                for key, memory in self.memories.items()
                if memory.couchbase is not None
            )
        )

    async def _probe(self, key: Key, memory: Memory, slot: asyncio.Semaphore) -> None:
        async with slot:
            couchbase = memory.couchbase
            login = await couchbase.probe() if couchbase is not None else None
        # each probe ends by its own deadline: a round over many dead nodes is long, not stuck
        self.on_life("probes")
        if login is not None and memory.couchbase is couchbase:
            self._note(key, memory, login)

    def _note(self, key: Key, memory: Memory, login: LoginState) -> None:
        memory.cache_failures = 0 if login.is_proven else memory.cache_failures + 1
        if 0 < memory.cache_failures < _FAILURES_UNTIL_UNHEALTHY and memory.cache is not None:
            return
        health = HEALTHY if login.is_proven else CacheHealth(is_healthy=False, detail=login.detail)
        if health != memory.cache:
            memory.note_cache(health)
            self.queue.add(key)
