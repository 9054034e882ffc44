"""Which nodes belong to the cluster, and which of them holds which vBucket."""

from e2e.couchbase_emulator.model.bucket import vbucket_owners
from e2e.couchbase_emulator.model.cluster import Cluster


def leave(cluster: Cluster, index: int) -> None:
    """Take a node out: its vBuckets go to the others in turn, theirs stay; raises ValueError when that cannot be."""
    node = cluster.nodes[index]
    if not node.member:
        raise ValueError(f"node {index} has left already")
    rest = [other.index for other in cluster.members if other is not node]
    if not rest:
        raise ValueError(f"node {index} is the last one of the cluster")
    node.member = False
    for bucket in cluster.buckets.values():
        owners = bucket.documents.owners
        bucket.documents.move(
            [rest[vbucket % len(rest)] if owner == index else owner for vbucket, owner in enumerate(owners)]
        )
    cluster.revision += 1


def join(cluster: Cluster, index: int) -> None:
    """Take a node in and spread vBuckets evenly; raises ValueError when it is in already."""
    node = cluster.nodes[index]
    if node.member:
        raise ValueError(f"node {index} is part of the cluster already")
    node.member = True
    members = [member.index for member in cluster.members]
    for bucket in cluster.buckets.values():
        bucket.documents.move(vbucket_owners(len(bucket.documents.owners), members))
    cluster.revision += 1


def shift_vbuckets(cluster: Cluster, steps: int) -> None:
    """Give every vBucket to the member that is `steps` further on."""
    members = [node.index for node in cluster.members]
    positions = {index: position for position, index in enumerate(members)}
    for bucket in cluster.buckets.values():
        owners = bucket.documents.owners
        bucket.documents.move([members[(positions[owner] + steps) % len(members)] for owner in owners])
    cluster.revision += 1
