"""The running operator: its parts put together, its tasks, and its life from start to stop."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import kopf

from couchbase_lm_operator import metrics, names
from couchbase_lm_operator.arms import Arms
from couchbase_lm_operator.core.compat import defaults
from couchbase_lm_operator.core.couchbase.connection_string import Address
from couchbase_lm_operator.errors import ClusterError, ClusterGoneError, OperatorError
from couchbase_lm_operator.gather import Gatherer
from couchbase_lm_operator.io.adapter_metrics import AdapterMetrics
from couchbase_lm_operator.io.addresses import guard_for
from couchbase_lm_operator.io.cluster import Cluster
from couchbase_lm_operator.io.health import HealthServer, Watchdog
from couchbase_lm_operator.io.hf_hub import ModelHub
from couchbase_lm_operator.io.kube_api import KubeApi
from couchbase_lm_operator.io.watches import watch_children
from couchbase_lm_operator.memory import Memories
from couchbase_lm_operator.patrol import Patrol
from couchbase_lm_operator.reconcile import Reconciler
from couchbase_lm_operator.removal import Remover
from couchbase_lm_operator.tasks import end
from couchbase_lm_operator.visits import Visits
from couchbase_lm_operator.work_queue import Key, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from couchbase_lm_operator.core.defaults import Defaults
    from couchbase_lm_operator.core.observed import Manifest
    from couchbase_lm_operator.io.addresses import AddressGuard
    from couchbase_lm_operator.settings import Settings

logger = logging.getLogger(__name__)

_DEFINITION_POLL_SECONDS = 3.0
_HEARTBEAT_SECONDS = 5.0
_LONGEST_PASS_SECONDS = 600.0
_WATCHED_KINDS = ("Deployment", "Service", "ControllerRevision")


class Runtime:
    """One operator. ``start`` and ``stop`` are called in kopf's event loop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.memories = Memories()
        self.on_failure: Callable[[], None] = lambda: None
        self.ready = asyncio.Event()
        self.http_port = 0
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: BaseException | None = None
        self._queue: WorkQueue | None = None

    async def wait_for_resource_definition(self, stop: asyncio.Event | None) -> None:
        """Wait until the API server serves our resource: kopf looks only once.

        Raises:
            SettingsError: the credentials of the API server cannot be read.
        """
        async with KubeApi(self.settings.kubeconfig) as api:
            while stop is None or not stop.is_set():
                try:
                    await api.request("GET", f"/apis/{names.API_VERSION}")
                except ClusterGoneError:
                    logger.warning("the CRD is not installed, waiting for it", extra={"group": names.GROUP})
                except ClusterError as error:
                    logger.warning("the API server cannot be asked, will repeat", extra={"problem": str(error)})
                else:
                    return
                await asyncio.sleep(_DEFINITION_POLL_SECONDS)

    async def connection_info(self) -> kopf.ConnectionInfo:
        """Return how kopf reaches the API server: as we do."""
        async with KubeApi(self.settings.kubeconfig) as api:
            return kopf.ConnectionInfo(**await api.connection_facts())

    async def start(self) -> None:
        """Build the parts and start their tasks."""
        settings = self.settings
        api = await self._stack.enter_async_context(KubeApi(settings.kubeconfig))
        cluster = Cluster(api)
        server = urlsplit(api.server)
        guard = await guard_for(
            [Address(server.hostname or "", server.port or 443), Address("kubernetes.default.svc", 443)]
        )
        visits = Visits(settings.provisioning_per_cluster, max(settings.workers // 2, 1), self.wake)
        self._stack.push_async_callback(visits.close)
        reconciler = make_reconciler(cluster, guard, settings, self.memories, visits)
        queue = self._queue = WorkQueue(reconciler.run, workers=settings.workers, clock=time.monotonic)
        watchdog = Watchdog(time.monotonic, _limits(settings))
        patrol = Patrol(cluster, settings.namespaces, queue, self.memories, watchdog.beat)
        self._observe(queue, watchdog)
        self._spawn("queue", queue.run())
        self._spawn("heartbeat", _beat(watchdog))
        for kind in _WATCHED_KINDS:
            for namespace in settings.namespaces or ("",):
                part = f"watch {kind} {namespace}".strip()
                life = _life(watchdog, part)
                self._spawn(
                    part,
                    watch_children(cluster, kind, namespace, lambda where, name: self.wake(Key(where, name)), life),
                )
        self._spawn("sweep", patrol.every(settings.sweep_seconds, "sweep", patrol.sweep))
        self._spawn(
            "references", patrol.every(settings.reference_poll_seconds, "references", patrol.look_at_references)
        )
        self._spawn("probes", patrol.every(settings.cache_probe_seconds, "probes", patrol.probe_caches))
        health = HealthServer(settings.http_host, settings.http_port, watchdog, metrics.REGISTRY)
        self.http_port = self._stack.enter_context(health).port
        self.ready.set()
        scope = ", ".join(settings.namespaces) or "all namespaces"
        logger.info("operator started", extra={"scope": scope, "http_port": self.http_port})

    async def stop(self) -> None:
        """End all tasks and close all connections; a pass in progress is given up between two requests."""
        for task in await end(self._tasks):
            logger.error("a task of the operator does not end", extra={"task": task.get_name()})
        await self._stack.aclose()

    def note_change(self, key: Key, resource_version: str) -> None:
        """Wake a resource, unless the event only echoes our own write."""
        memory = self.memories.of(key)
        if resource_version == memory.seen_version or resource_version in memory.own_versions:
            return
        memory.seen_version = resource_version
        memory.tombstone = None
        memory.removing_since = None
        self.wake(key)

    def note_deletion(self, key: Key, body: Manifest) -> None:
        """Keep the last body of a resource that is gone: what it left at Couchbase is still to be removed."""
        self.memories.of(key).tombstone = body
        self.wake(key)

    def raise_failure(self) -> None:
        """Raise what ended one of the operator's own tasks, if anything did."""
        if self._failure is not None:
            raise OperatorError("one of the operator's own tasks failed") from self._failure

    def wake(self, key: Key) -> None:
        """Ask for a pass over a resource."""
        if self._queue is not None:
            self._queue.add(key)

    def _spawn(self, name: str, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        self._failure = task.exception() or OperatorError(f"task {task.get_name()} ended")
        logger.error("a task of the operator failed", exc_info=self._failure, extra={"task": task.get_name()})
        self.on_failure()

    def _observe(self, queue: WorkQueue, watchdog: Watchdog) -> None:
        watchdog.watch_age("queue", queue.oldest_age_seconds)
        metrics.QUEUE_DEPTH.set_function(lambda: queue.depth)
        metrics.QUEUE_AGE_SECONDS.set_function(queue.oldest_age_seconds)
        metrics.RESOURCES.set_function(lambda: len(self.memories))


def make_reconciler(
    cluster: Cluster, guard: AddressGuard, settings: Settings, memories: Memories, visits: Visits
) -> Reconciler:
    """Return the flow of passes, put together from its parts."""
    gatherer = Gatherer(cluster, ModelHub(guard), AdapterMetrics(guard), settings.namespaces)
    arms = Arms(cluster, _defaults(settings), guard, visits)
    return Reconciler(cluster, gatherer, arms, Remover(gatherer, guard, visits), memories, settings.resync_seconds)


def _defaults(settings: Settings) -> Defaults:
    return defaults(
        operator_image=settings.operator_image,
        engine_images={"NVIDIA": settings.engine_image, "CPU": settings.engine_image_cpu},
        max_l1_bytes=settings.max_l1_bytes,
        allow_host_path=settings.allow_host_path,
    )


def _limits(settings: Settings) -> dict[str, float]:
    """Return how long each part may be silent before the operator counts as ill."""
    return {
        "queue": _LONGEST_PASS_SECONDS,
        "heartbeat": 6 * _HEARTBEAT_SECONDS,
        # bookmarks come every minute; several restarts of a watch are no illness
        "watch": 600.0,
        "sweep": 10 * settings.sweep_seconds + 60.0,
        "references": 10 * settings.reference_poll_seconds + 300.0,
        "probes": 10 * settings.cache_probe_seconds + 600.0,
    }


def _life(watchdog: Watchdog, part: str) -> Callable[[], None]:
    watchdog.beat(part)
    return lambda: watchdog.beat(part)


async def _beat(watchdog: Watchdog) -> None:
    while True:
        watchdog.beat("heartbeat")
        await asyncio.sleep(_HEARTBEAT_SECONDS)
