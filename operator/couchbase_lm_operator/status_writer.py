"""Writes the status of one resource during one pass: only differences, only onto what was read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator import names
from couchbase_lm_operator.core import status
from couchbase_lm_operator.core.couchbase import bucket_record
from couchbase_lm_operator.core.happenings import happenings
from couchbase_lm_operator.io import events
from couchbase_lm_operator.metrics import WRITES

if TYPE_CHECKING:
    from couchbase_lm_operator.core.couchbase_state import BucketRecord
    from couchbase_lm_operator.core.observed import Manifest
    from couchbase_lm_operator.core.progress import Progress
    from couchbase_lm_operator.io.cluster import Cluster
    from couchbase_lm_operator.memory import Memory


@dataclass
class StatusWriter:
    """``resource`` is the newest body known; every write replaces it by the API server's answer."""

    cluster: Cluster
    memory: Memory
    resource: Manifest

    async def save_record(self, record: BucketRecord) -> None:
        """Put the bucket's record into status now: the steps that follow rely on it.

        Raises:
            ClusterConflictError: the resource changed meanwhile; nothing was written.
        """
        previous = ((self.resource.get("status") or {}).get("couchbase") or {}).get("bucket") or {}
        change = status.difference(previous, bucket_record.to_status(record))
        if change:
            await self._patch({"couchbase": {"bucket": change}})

    async def write(self, progress: Progress) -> None:
        """Write what the pass found, and tell what changed as Events.

        Raises:
            ClusterConflictError: the resource changed meanwhile; the next pass writes.
        """
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        before = self.resource.get("status") or {}
        # on what this pass itself has written by now: a record saved on the way must not be taken back
        progress = replace(progress, observed=replace(progress.observed, resource=self.resource))
        wanted = status.build_status(progress, now)
        change = status.difference(before, wanted)
        if not change:
            return
        await self._patch(change)
        await events.post(self.cluster, self.resource, happenings(before, wanted))

    async def set_finalizer(self, *, is_wanted: bool) -> None:
        """Add or remove our finalizer, when it is not as wanted.

        Raises:
            ClusterConflictError: the resource changed meanwhile.
        """
        finalizers = list(self.resource["metadata"].get("finalizers") or [])
        if (names.FINALIZER in finalizers) == is_wanted:
            return
        others = [each for each in finalizers if each != names.FINALIZER]
        wanted = [*others, names.FINALIZER] if is_wanted else others
        self._take(await self.cluster.set_finalizers(self.resource, wanted))
        WRITES.labels(names.KIND, "finalizers").inc()

    async def _patch(self, change: dict[str, Any]) -> None:
        self._take(await self.cluster.patch_status(self.resource, change))
        WRITES.labels(names.KIND, "status").inc()

    def _take(self, answer: Manifest) -> None:
        self.resource = answer
        self.memory.seen_version = str(answer["metadata"]["resourceVersion"])
        self.memory.finalizers = tuple(answer["metadata"].get("finalizers") or ())
        self.memory.own_versions.append(self.memory.seen_version)
