"""kopf as the source of events for our resources, and nothing else of it.

Only ``on.startup``, ``on.cleanup`` and ``on.event`` are used: daemons, timers and other handlers would put
kopf's finalizer or its bookkeeping annotations on the resources. A handler adds a key to the queue; it
reads and decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import kopf

from couchbase_lm_operator import logs, names
from couchbase_lm_operator.runtime import Runtime
from couchbase_lm_operator.work_queue import Key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from couchbase_lm_operator.settings import Settings

_DELETED = "DELETED"


class _Delays:
    """Seconds between kopf's tries, without an end: with one, a namespace that is lost would end the operator."""

    def __iter__(self) -> Iterator[float]:
        return chain((1.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0), repeat(30.0))


def registry(runtime: Runtime) -> kopf.OperatorRegistry:
    """Return the handlers of one operator."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await runtime.connection_info()

    @kopf.on.startup(registry=handlers)
    async def start(**_: Any) -> None:
        await runtime.start()

    @kopf.on.cleanup(registry=handlers)
    async def stop(**_: Any) -> None:
        await runtime.stop()

    @kopf.on.event(names.GROUP, names.VERSION, names.PLURAL, registry=handlers)
    async def note(body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002 - kopf's name
        metadata = body["metadata"]
        key = Key(metadata["namespace"], metadata["name"])
        if type == _DELETED:
            runtime.note_deletion(key, dict(body))
        else:
            runtime.note_change(key, metadata["resourceVersion"])

    return handlers


def kopf_settings() -> kopf.OperatorSettings:
    """Return kopf's settings: it writes nothing to the cluster."""
    settings = kopf.OperatorSettings()
    # kopf strips a finalizer of its own name from whatever it meets: give it one that nobody uses
    settings.persistence.finalizer = names.NEVER_USED_KOPF_FINALIZER
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.networking.error_backoffs = _Delays()
    return settings


async def operate(runtime: Runtime, settings: Settings, stop: asyncio.Event | None = None) -> None:
    """Run kopf until a signal, ``stop``, or the end of one of the operator's own tasks."""
    await runtime.wait_for_resource_definition(stop)
    if stop is not None and stop.is_set():
        return
    ended = stop or asyncio.Event()
    runtime.on_failure = ended.set
    await kopf.operator(
        registry=registry(runtime),
        settings=kopf_settings(),
        standalone=True,
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
        stop_flag=ended,
    )
    runtime.raise_failure()


def run_operator(settings: Settings) -> None:
    """Run the operator until it is told to stop by SIGTERM or SIGINT.

    Raises:
        OperatorError: the credentials are wrong, or one of its own tasks failed: the process should restart.
    """
    logs.configure(settings)
    try:
        asyncio.run(operate(Runtime(settings), settings))
    except asyncio.CancelledError:
        logging.getLogger(__name__).info("operator was stopped")
