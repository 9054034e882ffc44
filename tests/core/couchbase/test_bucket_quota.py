"""Quota and replicas from what is wished and what the cluster has."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.couchbase import bucket_quota
from couchbase_lm_operator.core.couchbase.bucket_quota import BucketSize, choose, choose_replicas, needed_per_node_bytes
from couchbase_lm_operator.core.couchbase_state import CouchbaseState, NodeState
from couchbase_lm_operator.core.verdict import Refuse
from tests.provisioning.arm import MEBIBYTE, bucket_goal

GIBIBYTE = 1024 * MEBIBYTE


def cluster(
    data_nodes: int = 1,
    *,
    total_bytes: int = 16 * GIBIBYTE,
    used_bytes: int = 0,
    failover: bool = True,
    ephemeral_failover: bool = False,
) -> CouchbaseState:
    nodes = [NodeState(f"n{i}:8091", "healthy", has_data_service=True) for i in range(data_nodes)]
    nodes.append(NodeState("query:8091", "healthy", has_data_service=False))
    return CouchbaseState(
        cluster_uuid="c",
        is_enterprise=True,
        version="8.0.2-1-enterprise",
        nodes=tuple(nodes),
        ram_quota_total_per_node_bytes=total_bytes,
        ram_quota_used_per_node_bytes=used_bytes,
        auto_failover_enabled=failover,
        allows_ephemeral_failover_without_replicas=ephemeral_failover,
        bucket=None,
        user=None,
        login=None,
    )


@pytest.mark.parametrize(
    ("working_set", "replicas", "nodes", "mib"),
    [
        (800 * MEBIBYTE, 0, 1, 1000),  # 80 % of a quota holds documents
        (800 * MEBIBYTE, 1, 2, 1000),  # two copies on two nodes
        (800 * MEBIBYTE, 1, 4, 500),
        (801 * MEBIBYTE, 0, 1, 1002),  # rounded up to whole MiB
        (1, 0, 3, 100),  # Couchbase's minimum
    ],
)
def test_what_a_working_set_needs(working_set: int, replicas: int, nodes: int, mib: int) -> None:
    assert needed_per_node_bytes(working_set, replicas, nodes) == mib * MEBIBYTE


@pytest.mark.parametrize(
    ("used", "quota_mib", "is_below"),
    [
        (0, 1000, False),
        (14 * GIBIBYTE, 1000, False),
        (15 * GIBIBYTE, 512, True),  # half of the free 1024 MiB
        (16 * GIBIBYTE - 150 * MEBIBYTE, 100, True),  # half would be below the minimum
    ],
)
def test_a_worked_out_quota_leaves_half_of_what_is_free(used: int, quota_mib: int, *, is_below: bool) -> None:
    size = choose(bucket_goal(working_set_bytes=800 * MEBIBYTE), cluster(used_bytes=used))
    assert isinstance(size, BucketSize)
    assert size.quota_per_node_bytes == quota_mib * MEBIBYTE
    assert size.is_below_working_set is is_below


@pytest.mark.parametrize(
    ("bucket", "seen", "reason", "words"),
    [
        ({}, cluster(0), Reason.NO_DATA_NODES, "data service"),
        ({}, cluster(used_bytes=16 * GIBIBYTE), Reason.QUOTA_EXCEEDS_FREE, "0 MiB"),
        ({}, cluster(used_bytes=17 * GIBIBYTE), Reason.QUOTA_EXCEEDS_FREE, "0 MiB"),
        ({"memory_quota_bytes": 99 * MEBIBYTE}, cluster(), Reason.QUOTA_TOO_SMALL, "spec.couchbase.bucket.memoryQuota"),
        ({"memory_quota_bytes": 17 * GIBIBYTE}, cluster(), Reason.QUOTA_EXCEEDS_FREE, "16384 MiB"),
        ({"replicas": 1}, cluster(1), Reason.TOO_MANY_REPLICAS, "1 data node:"),
        ({"replicas": 3}, cluster(3), Reason.TOO_MANY_REPLICAS, "set it to 2 or less"),
        ({"replicas": 0}, cluster(2), Reason.AUTO_FAILOVER_BLOCKED, "acceptNoAutoFailover"),
    ],
)
def test_what_a_cluster_cannot_have(bucket: dict[str, int], seen: CouchbaseState, reason: Reason, words: str) -> None:
    refusal = choose(bucket_goal(**bucket), seen)
    assert isinstance(refusal, Refuse)
    assert refusal.reason is reason
    assert words in refusal.message


@pytest.mark.parametrize(
    ("bucket", "seen", "replicas"),
    [
        ({}, cluster(1), 0),
        ({}, cluster(2), 1),
        ({}, cluster(2, ephemeral_failover=True), 0),
        ({}, cluster(2, failover=False), 1),
        ({"bucket_type": "Couchbase"}, cluster(2, ephemeral_failover=True), 1),
        ({"replicas": 0}, cluster(2, failover=False), 0),
        ({"replicas": 0}, cluster(2, ephemeral_failover=True), 0),
        ({"replicas": 0, "accept_no_auto_failover": True}, cluster(2), 0),
        ({"replicas": 0, "bucket_type": "Couchbase"}, cluster(2), 0),
        ({"replicas": 2}, cluster(3), 2),
    ],
)
def test_replicas(bucket: dict[str, object], seen: CouchbaseState, replicas: int) -> None:
    assert choose_replicas(bucket_goal(**bucket), seen) == replicas


def test_an_edit_may_use_what_the_bucket_has_already() -> None:
    seen = replace(cluster(), ram_quota_used_per_node_bytes=16 * GIBIBYTE)
    assert bucket_quota.edit_refusal(GIBIBYTE, GIBIBYTE, seen) is None
    assert bucket_quota.edit_refusal(GIBIBYTE + 1, GIBIBYTE, seen) is not None


@given(
    working_set=st.integers(1, 1 << 50),
    used=st.integers(0, 64 * GIBIBYTE),
    nodes=st.integers(1, 9),
)
def test_a_chosen_quota_always_fits(working_set: int, used: int, nodes: int) -> None:
    seen = cluster(nodes, total_bytes=64 * GIBIBYTE, used_bytes=used)
    size = choose(bucket_goal(working_set_bytes=working_set), seen)
    if isinstance(size, BucketSize):
        assert 100 * MEBIBYTE <= size.quota_per_node_bytes <= 64 * GIBIBYTE - used
        assert size.quota_per_node_bytes % MEBIBYTE == 0
        assert size.quota_per_node_bytes <= max(size.needed_per_node_bytes, 100 * MEBIBYTE)
    else:
        assert 64 * GIBIBYTE - used < 100 * MEBIBYTE
