"""The namespaces that are watched: one of them may be gone, and that is no trouble of the others.

With a namespace goes the Role in it, so the API server answers 403 for it: nothing of it is looked after
until its Role is there again. Where all namespaces are watched, a refusal is the operator's own trouble.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from couchbase_lm_operator import names
from couchbase_lm_operator.errors import ClusterRefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from couchbase_lm_operator.core.observed import Manifest
    from couchbase_lm_operator.errors import ClusterError
    from couchbase_lm_operator.io.cluster import Cluster

FORBIDDEN = 403


def is_lost(error: ClusterError, namespace: str) -> bool:
    """Say whether a refusal means that a watched namespace is gone, or closed to the operator."""
    return bool(namespace) and error.status == FORBIDDEN


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
        if is_lost(error, namespace):
            return None
        raise
    return items
