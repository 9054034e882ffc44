"""A cluster of three nodes with one collection, and which of its nodes own the documents of an object."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from conftest import BUCKET, SCOPE, Place, prepare
from lmcache.v1.distributed.api import ObjectKey

from couchbase_lm_cache.keys import object_key, shard_key
from e2e.couchbase_emulator.running import RunningEmulator, running_emulator

COLLECTION = "nodes"


@contextmanager
def running_three_nodes(*, tls: bool = False) -> Iterator[RunningEmulator]:
    """Run a cluster, each with ports of its own."""
    with running_emulator(nodes=3, tls=tls) as emulator:
        prepare(emulator)
        emulator.create_collection(BUCKET, SCOPE, COLLECTION)
        yield emulator


def is_alive(place: Place, name: ObjectKey, *, shards: int, dead: int) -> bool:
    """Say whether all documents of an object belong to nodes that are up."""
    owners = place.emulator.call(lambda emulator: list(emulator.cluster.buckets[BUCKET].documents.owners))
    key = object_key(
        "",
        model_name=name.model_name,
        kv_rank=name.kv_rank,
        object_group_id=name.object_group_id,
        chunk_hash=name.chunk_hash,
        cache_salt=name.cache_salt,
    )
    documents = [key, *(shard_key(key, index) for index in range(shards))]
    return all(owners[(zlib.crc32(one.encode()) >> 16 & 0x7FFF) % len(owners)] != dead for one in documents)
