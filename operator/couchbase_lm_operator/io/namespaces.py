"""The namespaces that are watched: one of them may be gone, and that is no trouble of the others.

With a namespace goes the Role in it, so the API server answers 403 for it: nothing of it is looked after
until its Role is there again. A Role that lacks a single right is another matter, and so is a refusal where
all namespaces are watched: that is the operator's own trouble.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from couchbase_lm_operator import names
from couchbase_lm_operator.errors import ClusterError, ClusterRefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from couchbase_lm_operator.core.observed import Manifest
    from couchbase_lm_operator.io.cluster import Cluster

FORBIDDEN = 403


async def is_lost(cluster: Cluster, error: ClusterError, namespace: str) -> bool:
    """Say whether a refusal means that a watched namespace is gone, or closed to the operator.

    It is when not even our resources in it may be listed, without which nothing of it can be looked after.
    ``namespace`` is empty where all are watched. While the API server does not answer, nothing counts as lost.
    """
    if not namespace or error.status != FORBIDDEN:
        return False
    try:
        return await _resources(cluster, namespace) is None
    except ClusterError:
        return False


async def resources_of(cluster: Cluster, namespaces: Sequence[str]) -> tuple[list[Manifest], frozenset[str]]:
    """Return our resources in all watched namespaces (all there are when none is named), and the lost ones.

    Raises:
        ClusterError: the API server did not answer, or refuses more than single namespaces.
    """
    lists = await asyncio.gather(*(_resources(cluster, namespace) for namespace in namespaces or ("",)))
    found = [resource for each in lists if each is not None for resource in each]
    lost = [namespace for namespace, each in zip(namespaces, lists, strict=False) if each is None]
    return found, frozenset(lost)


async def _resources(cluster: Cluster, namespace: str) -> list[Manifest] | None:
    try:
        items, _ = await cluster.objects(names.KIND, namespace)
    except ClusterRefusedError as error:
        if not namespace or error.status != FORBIDDEN:
            raise
        return None
    return items
