"""Kubernetes Events about our resources. Losing one is no fault: the conditions say the same."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from couchbase_lm_operator import names
from couchbase_lm_operator.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from couchbase_lm_operator.core.happenings import Happening
    from couchbase_lm_operator.core.observed import Manifest
    from couchbase_lm_operator.io.cluster import Cluster

logger = logging.getLogger(__name__)

_MAX_MESSAGE_LENGTH = 1024
_MAX_NAME_PREFIX_LENGTH = 200


async def post(cluster: Cluster, resource: Manifest, happenings: Iterable[Happening]) -> None:
    """Create one Event for each happening; a refusal is logged and forgotten."""
    metadata = resource["metadata"]
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for happening in happenings:
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "generateName": f"{metadata['name'][:_MAX_NAME_PREFIX_LENGTH]}.",
                "namespace": metadata["namespace"],
            },
            "involvedObject": {
                "apiVersion": names.API_VERSION,
                "kind": names.KIND,
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
            },
            "type": happening.kind,
            "reason": happening.reason,
            "message": happening.message[:_MAX_MESSAGE_LENGTH],
            "source": {"component": names.FIELD_MANAGER},
            "reportingComponent": names.FIELD_MANAGER,
            "reportingInstance": names.FIELD_MANAGER,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await cluster.create(event)
        except ClusterError as error:
            logger.info("event was not stored", extra={"reason": happening.reason, "problem": str(error)})
