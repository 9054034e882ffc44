"""Quota and replicas of a bucket that is to be created, from the wish and what the cluster has. Pure.

A bucket's memory is used up to about 80 % before ephemeral documents are evicted (watermarks 75 and
85 %), and each replica holds every document once more. Quotas are per data node, as Couchbase counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.verdict import Refuse

if TYPE_CHECKING:
    from couchbase_lm_operator.core.couchbase_state import BucketGoal, CouchbaseState

MEBIBYTE = 1024 * 1024
MIN_QUOTA_PER_NODE_BYTES = 100 * MEBIBYTE
USABLE_SHARE_PERCENT = 80
"""Share of a quota that holds documents before eviction sets in."""


@dataclass(frozen=True)
class BucketSize:
    """Memory of a bucket: ``needed_per_node_bytes`` is what the working set asks for."""

    quota_per_node_bytes: int
    needed_per_node_bytes: int
    replicas: int
    data_node_count: int

    @property
    def quota_total_bytes(self) -> int:
        """Return the quota over all data nodes."""
        return self.quota_per_node_bytes * self.data_node_count

    @property
    def is_below_working_set(self) -> bool:
        """Say whether the bucket holds less than the wished contexts."""
        return self.quota_per_node_bytes < self.needed_per_node_bytes


def needed_per_node_bytes(working_set_bytes: int, replicas: int, data_node_count: int) -> int:
    """Return the quota per node, in whole MiB, that holds ``working_set_bytes`` and its replicas."""
    copies_bytes = working_set_bytes * (1 + replicas)
    return max(
        _ceil_mib(_ceil_div(copies_bytes * 100, USABLE_SHARE_PERCENT * data_node_count)), MIN_QUOTA_PER_NODE_BYTES
    )


def choose(goal: BucketGoal, seen: CouchbaseState) -> BucketSize | Refuse:
    """Return quota and replicas for a new bucket, or why this cluster cannot have it.

    Without an explicit quota the working set has to be known.
    """
    nodes = len(seen.data_nodes)
    if nodes == 0:
        return Refuse(
            Reason.NO_DATA_NODES,
            "No node of the Couchbase cluster runs the data service: add it to a node, then wait.",
        )
    replicas = choose_replicas(goal, seen)
    if isinstance(replicas, Refuse):
        return replicas
    needed = needed_per_node_bytes(goal.working_set_bytes or 0, replicas, nodes)
    free = seen.ram_quota_total_per_node_bytes - seen.ram_quota_used_per_node_bytes
    quota = _explicit_quota(goal, free) if goal.memory_quota_bytes is not None else _derived_quota(needed, free)
    if isinstance(quota, Refuse):
        return quota
    return BucketSize(quota, needed, replicas, nodes)


def choose_replicas(goal: BucketGoal, seen: CouchbaseState) -> int | Refuse:
    """Return the replica count, or why the asked one is impossible or would harm the cluster.

    Absent means 0 on one data node or where the cluster fails over ephemeral buckets without replicas,
    else 1, as an ephemeral bucket without replicas stops automatic failover of the whole cluster.
    """
    nodes = len(seen.data_nodes)
    is_ephemeral = goal.bucket_type == "Ephemeral"
    if goal.replicas is None:
        return 0 if nodes == 1 or (is_ephemeral and seen.allows_ephemeral_failover_without_replicas) else 1
    if goal.replicas >= nodes:
        return Refuse(
            Reason.TOO_MANY_REPLICAS,
            f"spec.couchbase.bucket.replicas is {goal.replicas}, but the cluster has {_count(nodes, 'data node')}: "
            f"set it to {nodes - 1} or less, or add data nodes.",
        )
    blocks_failover = (
        is_ephemeral
        and goal.replicas == 0
        and nodes > 1
        and seen.auto_failover_enabled
        and not seen.allows_ephemeral_failover_without_replicas
    )
    if blocks_failover and not goal.accept_no_auto_failover:
        return Refuse(
            Reason.AUTO_FAILOVER_BLOCKED,
            "spec.couchbase.bucket.replicas is 0: an ephemeral bucket without replicas blocks automatic failover of "
            "every node. Remove the field or set it to 1; or allow failover of ephemeral buckets without replicas in "
            "the cluster's auto-failover settings; or set spec.couchbase.bucket.acceptNoAutoFailover to true.",
        )
    return goal.replicas


def edit_refusal(goal_bytes: int, current_bytes: int, seen: CouchbaseState) -> Refuse | None:
    """Return why our bucket cannot get the new explicit quota, or None when it can."""
    free = seen.ram_quota_total_per_node_bytes - seen.ram_quota_used_per_node_bytes
    quota = _within(goal_bytes, free + current_bytes)
    return quota if isinstance(quota, Refuse) else None


def whole_mib(size_bytes: int) -> int:
    """Return ``size_bytes`` rounded up to whole MiB, the unit in which Couchbase takes quotas."""
    return _ceil_mib(size_bytes)


def _explicit_quota(goal: BucketGoal, free_bytes: int) -> int | Refuse:
    assert goal.memory_quota_bytes is not None  # noqa: S101 - the caller asked before
    return _within(goal.memory_quota_bytes, free_bytes)


def _within(asked_bytes: int, limit_bytes: int) -> int | Refuse:
    quota = _ceil_mib(asked_bytes)
    if quota < MIN_QUOTA_PER_NODE_BYTES:
        return Refuse(
            Reason.QUOTA_TOO_SMALL,
            f"spec.couchbase.bucket.memoryQuota is {_mib(quota)} per data node; Couchbase takes "
            f"{_mib(MIN_QUOTA_PER_NODE_BYTES)} at least: raise it.",
        )
    if quota > limit_bytes:
        return Refuse(
            Reason.QUOTA_EXCEEDS_FREE,
            f"spec.couchbase.bucket.memoryQuota is {_mib(quota)} per data node, but at most "
            f"{_mib(max(limit_bytes, 0))} of the data service's memory quota can be had: lower it, give the data "
            "service more memory, or remove a bucket.",
        )
    return quota


def _derived_quota(needed_bytes: int, free_bytes: int) -> int | Refuse:
    # Half of what is free, so that the next resource and other teams find room too.
    quota = max(min(needed_bytes, free_bytes // 2 // MEBIBYTE * MEBIBYTE), MIN_QUOTA_PER_NODE_BYTES)
    if quota > free_bytes:
        return Refuse(
            Reason.QUOTA_EXCEEDS_FREE,
            f"The data service has {_mib(max(free_bytes, 0))} of its memory quota free per node; a bucket needs "
            f"{_mib(MIN_QUOTA_PER_NODE_BYTES)} at least: give the data service more memory or remove a bucket.",
        )
    return quota


def _ceil_div(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


def _ceil_mib(size_bytes: int) -> int:
    return _ceil_div(size_bytes, MEBIBYTE) * MEBIBYTE


def _mib(size_bytes: int) -> str:
    return f"{size_bytes // MEBIBYTE} MiB"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
