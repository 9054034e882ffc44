"""Range scans through the SDK: what a list of stored objects is made of."""

from collections.abc import Iterator

import pytest
from couchbase.collection import Collection
from couchbase.exceptions import FeatureUnavailableException
from couchbase.kv_range_scan import RangeScan, ScanTerm
from couchbase.options import ScanOptions

from e2e.conformance.conftest import Place
from e2e.conformance.target import Target, open_separate_target
from e2e.conformance.world import World

COUNT = 300


@pytest.fixture(scope="module")
def separate() -> Iterator[Target]:
    """A cluster outside of this process."""
    with open_separate_target() as target:
        yield target


@pytest.fixture(scope="module")
def surroundings(separate: Target) -> Iterator[World]:
    """The same, with everything made on it removed at the end."""
    with separate.http() as http:
        world = World(separate, http)
        yield world
        world.clean_up()


@pytest.fixture
def scannable(separate: Target, surroundings: World, bucket_type: str) -> Iterator[Collection]:
    """A collection with documents in all vBuckets, in a bucket of the given type."""
    kind = {"storageBackend": "couchstore", "evictionPolicy": "fullEviction"} if bucket_type == "couchbase" else {}
    bucket = surroundings.make_bucket(bucketType=bucket_type, **kind)
    place = Place(bucket, *surroundings.make_collection(bucket))
    with separate.cluster() as cluster:
        collection = place.open(cluster)
        collection.upsert_multi({f"key-{number:04d}": b"value" for number in range(COUNT)})
        yield collection
    surroundings.drop_bucket(bucket)


def _keys(collection: Collection, first: ScanTerm | None, last: ScanTerm | None) -> list[str]:
    return sorted(one.id for one in collection.scan(RangeScan(first, last), ScanOptions(ids_only=True)))


@pytest.mark.parametrize("bucket_type", ["couchbase"])
def test_a_scan_tells_each_key_of_its_range_once(scannable: Collection) -> None:
    """With open ends, with ends in the middle, and with ends that are left out."""
    every = [f"key-{number:04d}" for number in range(COUNT)]
    assert _keys(scannable, None, None) == every
    assert _keys(scannable, ScanTerm("key-0100"), ScanTerm("key-0199")) == every[100:200]
    excluded = (ScanTerm("key-0100", exclusive=True), ScanTerm("key-0199", exclusive=True))
    assert _keys(scannable, *excluded) == every[101:199]
    assert _keys(scannable, ScanTerm("other"), None) == []


@pytest.mark.parametrize("bucket_type", ["couchbase"])
def test_a_scan_does_not_see_what_was_removed(scannable: Collection) -> None:
    """Documents that were removed before the scan began are not in it."""
    for number in range(0, COUNT, 2):
        scannable.remove(f"key-{number:04d}")
    assert _keys(scannable, None, None) == [f"key-{number:04d}" for number in range(1, COUNT, 2)]


@pytest.mark.parametrize("bucket_type", ["ephemeral"])
def test_ephemeral_buckets_cannot_be_scanned(scannable: Collection) -> None:
    """They say so."""
    with pytest.raises(FeatureUnavailableException):
        _keys(scannable, None, None)
