"""One pass over one resource: the only flow of the operator.

wake -> gather -> check -> plan -> render -> apply and provision -> status. No later step calls an earlier
one, and every pass returns the delay until the next. The two arms run side by side: neither a dead
Couchbase nor a wrong password keeps pods from serving, and a silent one is not waited for (see ``visits``).
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import ValidationError

from couchbase_lm_operator import names
from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec
from couchbase_lm_operator.core.backoff import FIRST_DELAY_SECONDS, retry_delay_seconds, steady_delay_seconds
from couchbase_lm_operator.core.children.lost_record import deployment_of
from couchbase_lm_operator.core.children.readiness import workload_state
from couchbase_lm_operator.core.happenings import Happening
from couchbase_lm_operator.core.progress import Progress
from couchbase_lm_operator.core.reference_names import reference_names
from couchbase_lm_operator.core.verdict import Proceed, Refuse, Verdict, Wait
from couchbase_lm_operator.errors import ClusterConflictError, ClusterError, ClusterRefusedError
from couchbase_lm_operator.io import events, references
from couchbase_lm_operator.io.namespaces import is_lost
from couchbase_lm_operator.metrics import PASS_SECONDS, PASSES
from couchbase_lm_operator.status_writer import StatusWriter

if TYPE_CHECKING:
    from couchbase_lm_operator.arms import Arms
    from couchbase_lm_operator.core.observed import Manifest, Observed
    from couchbase_lm_operator.gather import Gatherer
    from couchbase_lm_operator.io.cluster import Cluster
    from couchbase_lm_operator.memory import Memories, Memory
    from couchbase_lm_operator.removal import Remains, Remover
    from couchbase_lm_operator.work_queue import Key

logger = logging.getLogger(__name__)

_POD_POLL_SECONDS = 15.0
_CONFLICT_DELAY_SECONDS = 0.2
_RELEASED_DELAY_SECONDS = 0.2


@dataclass(frozen=True)
class Reconciler:
    """Runs passes; one instance serves all resources, and ``memories`` is all that it changes."""

    cluster: Cluster
    gatherer: Gatherer
    arms: Arms
    remover: Remover
    memories: Memories
    resync_seconds: float

    async def run(self, key: Key) -> float | None:
        """Run one pass and return the seconds until the next; None when the resource is gone. Never raises."""
        memory, started = self.memories.of(key), time.monotonic()
        outcome, delay_seconds = "done", None
        try:
            delay_seconds = await self._pass(key, memory)
        except ClusterConflictError:
            outcome, delay_seconds = "conflict", _CONFLICT_DELAY_SECONDS
        except ClusterError as error:
            outcome, delay_seconds = "cluster", _trouble_delay(memory, FIRST_DELAY_SECONDS)
            if self.gatherer.namespaces and await is_lost(self.cluster, error, key.namespace):
                _lose(key, memory)
            else:
                logger.warning("pass failed", extra={"resource": str(key), "problem": str(error)})
        except Exception:
            outcome, delay_seconds = "fault", _trouble_delay(memory, FIRST_DELAY_SECONDS)
            logger.exception("pass failed unexpectedly", extra={"resource": str(key)})
        PASSES.labels(outcome).inc()
        PASS_SECONDS.observe(time.monotonic() - started)
        return delay_seconds

    async def _pass(self, key: Key, memory: Memory) -> float | None:
        # 1. the resource as it is now, not as an event told
        try:
            resource = await self.cluster.get(names.KIND, key.namespace, key.name)
        except ClusterRefusedError:
            if memory.tombstone is None:
                raise
            resource = None  # its end was told, and then its namespace went with the rights to look
        if resource is None:
            return await self._bury(key, memory)
        metadata = resource["metadata"]
        memory.note_uid(str(metadata["uid"]))
        memory.seen_version = str(metadata["resourceVersion"])
        memory.finalizers, memory.is_lost = _finalizers(resource), False
        if memory.generation != metadata["generation"]:
            memory.generation, memory.troubled_since = metadata["generation"], None
        writer = StatusWriter(self.cluster, memory, resource)
        if metadata.get("deletionTimestamp"):
            return await self._release(writer, memory)
        # 2. everything up to the status, which tells how far it went
        try:
            progress = await self._progress(writer, memory)
        except ClusterError:
            raise
        except Exception:
            logger.exception("pass failed unexpectedly", extra={"resource": str(key)})
            observed = await self.gatherer.bare(writer.resource)
            told = "The operator failed in an unexpected way: see its log."
            progress = _unplanned(observed, Wait(Reason.OPERATOR_ERROR, told, FIRST_DELAY_SECONDS), memory)
        await writer.write(progress)
        return self._delay(progress, memory)

    async def _progress(self, writer: StatusWriter, memory: Memory) -> Progress:
        raw = writer.resource.get("spec") or {}
        try:
            spec = LMCacheCouchbaseSpec.model_validate(raw)
        except ValidationError as error:
            memory.references = {}  # the names in it may be none; only another spec helps
            observed = await self.gatherer.bare(writer.resource)
            self.arms.watch_cache(None, observed, memory)
            return _unplanned(observed, _invalid(error), memory)
        memory.references = await self._reference_versions(writer.resource)
        if spec.suspend:
            observed = await self.gatherer.bare(writer.resource, spec)
            self.arms.watch_cache(spec, observed, memory)
            return _unplanned(observed, Proceed(), memory, is_suspended=True)
        couchbase = spec.couchbase
        is_owned = couchbase.resolved_provisioning == "RestAPI" and couchbase.bucket.management == "Owned"
        await writer.set_finalizer(is_wanted=is_owned and couchbase.bucket.reclaim_policy == "Delete")
        observed = await self.gatherer.gather(writer.resource, spec)
        return await self.arms.work(spec, observed, writer, memory)

    async def _reference_versions(self, resource: Manifest) -> dict[tuple[str, str], str]:
        """Return the versions before anything is read: what changes later differs from them."""
        wanted = reference_names(resource)
        namespace = str(resource["metadata"]["namespace"])
        versions = await asyncio.gather(
            *(references.version(self.cluster, kind, namespace, name) for kind, name in wanted)
        )
        return dict(zip(wanted, versions, strict=True))

    async def _release(self, writer: StatusWriter, memory: Memory) -> float | None:
        """Remove what is ours at Couchbase; then, or when the effort was enough, let the resource go."""
        if await self._goes_with_its_rights(writer.resource):
            memory.tombstone = writer.resource
            await writer.set_finalizer(is_wanted=False)
            return _RELEASED_DELAY_SECONDS
        left = await self._remove(writer.resource, memory)
        if left is not None and _has_patience(left, memory):
            await writer.write(_unplanned(await self.gatherer.bare(writer.resource), Proceed(), memory))
            return _trouble_delay(memory, 1.0)
        if left is not None:
            told = f"Bucket or user stay at Couchbase: {left.why}"
            logger.warning("removal was given up", extra={"resource": str(memory.key), "problem": told})
            await events.post(self.cluster, writer.resource, [Happening("Warning", Reason.REMOVAL_ABANDONED, told)])
        await writer.set_finalizer(is_wanted=False)
        return None

    async def _goes_with_its_rights(self, resource: Manifest) -> bool:
        """Say whether the resource holds its namespace while that takes the operator's Role along.

        Whoever waits for Couchbase then may wait too long: without the Role the finalizer cannot be removed.
        """
        if not self.gatherer.namespaces or names.FINALIZER not in _finalizers(resource):
            return False
        return await self.gatherer.is_being_deleted(str(resource["metadata"]["namespace"]))

    async def _bury(self, key: Key, memory: Memory) -> float | None:
        """Remove what a resource left that went without a finalizer, as far as it is still possible."""
        if memory.tombstone is not None:
            left = await self._remove(memory.tombstone, memory)
            if memory.tombstone is None:
                return None  # made again meanwhile, and woken: its memory is in use
            if left is not None and _has_patience(left, memory):
                return _trouble_delay(memory, 1.0)
            if left is not None:
                told = f"Bucket or user stay at Couchbase: {left.why}"
                logger.warning("removal was given up", extra={"resource": str(key), "problem": told})
        self.memories.forget(key)
        return None

    async def _remove(self, resource: Manifest, memory: Memory) -> Remains | None:
        memory.couchbase = None
        if memory.removing_since is None:
            memory.removing_since = time.monotonic()
        return await self.remover.remove(resource, memory)

    def _delay(self, progress: Progress, memory: Memory) -> float:
        verdicts: list[Verdict] = [progress.verdict]
        if progress.provisioned is not None:
            verdicts.append(progress.provisioned.verdict)
        waits = [each.delay_seconds for each in verdicts if isinstance(each, Wait)]
        waits += [FIRST_DELAY_SECONDS for each in verdicts if isinstance(each, Refuse)]
        if progress.cache is not None and progress.cache.is_healthy is False:
            waits.append(FIRST_DELAY_SECONDS)  # what the cache stands on may have to be made again
        if waits:
            return _trouble_delay(memory, min(waits))
        memory.troubled_since = None
        if not progress.workload.is_available:
            return _POD_POLL_SECONDS
        steady = steady_delay_seconds(self.resync_seconds, random.random())  # noqa: S311 - spreads load, hides nothing
        return min(steady, _unseen_delay(progress, memory))


def _lose(key: Key, memory: Memory) -> None:
    """Leave a resource alone that the operator has no rights on any more, and tell it once."""
    memory.couchbase = None
    memory.note_cache(None)
    if memory.is_lost:
        return
    memory.is_lost = True
    what = {"resource": str(key)}
    if names.FINALIZER in memory.finalizers and memory.tombstone is None:
        others = [each for each in memory.finalizers if each != names.FINALIZER]
        patch = json.dumps({"metadata": {"finalizers": others or None}})
        what["remedy"] = (
            f"kubectl patch {names.SHORT_NAME} {key.name} --namespace {key.namespace} --type merge --patch '{patch}'"
        )
        told = "no rights on a resource any more: if its namespace is being deleted, that waits for the remedy"
    else:
        told = "no rights on a resource any more: it is not looked after"
    logger.warning(told, extra=what)


def _finalizers(resource: Manifest) -> tuple[str, ...]:
    return tuple(resource["metadata"].get("finalizers") or ())


def _has_patience(left: Remains, memory: Memory) -> bool:
    tried_seconds = time.monotonic() - (memory.removing_since or 0.0)
    return tried_seconds < left.patience_seconds


def _trouble_delay(memory: Memory, first_seconds: float) -> float:
    now = time.monotonic()
    if memory.troubled_since is None:
        memory.troubled_since = now
    return retry_delay_seconds(first_seconds, now - memory.troubled_since, random.random())  # noqa: S311 - as above


def _unseen_delay(progress: Progress, memory: Memory) -> float:
    """Return the wait until pods are asked again what they store: soon at first, as a new pod stores one chunk."""
    if not progress.awaits_observation:
        memory.unseen_since = None
        return math.inf
    now = time.monotonic()
    if memory.unseen_since is None:
        memory.unseen_since = now
    return retry_delay_seconds(FIRST_DELAY_SECONDS, now - memory.unseen_since, random.random())  # noqa: S311 - as above


def _unplanned(observed: Observed, verdict: Verdict, memory: Memory, *, is_suspended: bool = False) -> Progress:
    """Return the progress of a pass that follows no spec: what runs goes on running and is looked at."""
    return Progress(
        observed=observed,
        is_suspended=is_suspended,
        plan=None,
        verdict=verdict,
        provisioned=None,
        workload=workload_state(deployment_of(observed.resource, observed.children), observed.pods),
        pin=None,
        cache=memory.cache,
    )


def _invalid(error: ValidationError) -> Refuse:
    problems = "; ".join(f"spec.{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:5])
    return Refuse(Reason.INVALID_SPEC, f"The specification cannot be used: {problems}. Correct these fields.")
