"""Watches of the children: a list, then changes from there, for ever; each change wakes its resource.

Only the owner's name is taken from a child (its instance label): what happened to it does not matter, the
pass looks for itself. A watch that ends, breaks, or is silent although bookmarks come every minute is
started again with a list, so that nothing that changed meanwhile is missed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator import names
from couchbase_lm_operator.errors import ClusterError, ClusterGoneError
from couchbase_lm_operator.io.kube_api import KINDS
from couchbase_lm_operator.io.namespaces import FORBIDDEN, is_lost
from couchbase_lm_operator.metrics import WATCH_RESTARTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from couchbase_lm_operator.io.cluster import Cluster

logger = logging.getLogger(__name__)

_WATCH_SECONDS = 300
_SILENCE_SECONDS = 90.0
_PAUSE_SECONDS = 0.5
_RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0)
OUR_CHILDREN = f"{names.LABEL_MANAGED_BY}={names.FIELD_MANAGER}"


async def watch_children(
    cluster: Cluster,
    kind: str,
    namespace: str,
    on_change: Callable[[str, str], None],
    on_life: Callable[[], None],
) -> None:
    """Call ``on_change(namespace, instance)`` for every child of a kind that is there or changes.

    ``namespace`` is empty for all. ``on_life`` is called whenever the API server showed life, which it does
    too when it refuses one of several namespaces: no restart would bring the rights back. Runs until cancelled.
    """
    failures, is_refused = 0, False
    while True:
        try:
            items, version = await cluster.objects(kind, namespace, label_selector=OUR_CHILDREN)
            for item in items:
                _tell(item, on_change)
            on_life()
            failures = 0
            await _follow(cluster, kind, namespace, version, on_change=on_change, on_life=on_life)
        except ClusterError as error:
            WATCH_RESTARTS.labels(kind).inc()
            delay_seconds = _RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)]
            failures += 1
            if namespace and error.status == FORBIDDEN:
                on_life()
            what = {"kind": kind, "problem": str(error)}
            is_right_missing = error.status == FORBIDDEN and not await is_lost(cluster, error, namespace)
            if is_right_missing and not is_refused:
                logger.warning("a watch is refused: changes of these objects are noticed late", extra=what)
            else:
                logger.info("watch broke, will list again", extra=what)
            is_refused = is_right_missing
            await asyncio.sleep(delay_seconds)


async def _follow(
    cluster: Cluster,
    kind: str,
    namespace: str,
    version: str,
    *,
    on_change: Callable[[str, str], None],
    on_life: Callable[[], None],
) -> None:
    while True:
        query = {
            "labelSelector": OUR_CHILDREN,
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        stream = cluster.api.stream(KINDS[kind].path(namespace), query=query, silence_seconds=_SILENCE_SECONDS)
        async for event in stream:
            on_life()
            if event["type"] == "ERROR":  # mostly 410: the version is too old, so list again
                told = event["object"]
                raise ClusterGoneError(f"WATCH {kind}", int(told.get("code", 0)), str(told.get("reason")), "ended")
            version = str(event["object"]["metadata"]["resourceVersion"])
            if event["type"] != "BOOKMARK":
                _tell(event["object"], on_change)
        await asyncio.sleep(_PAUSE_SECONDS)  # the server ended it, as it does every few minutes


def _tell(child: dict[str, Any], on_change: Callable[[str, str], None]) -> None:
    metadata = child["metadata"]
    instance = (metadata.get("labels") or {}).get(names.LABEL_INSTANCE)
    if instance:
        on_change(str(metadata["namespace"]), str(instance))
