"""Documents through the SDK: what the L2 adapter does with them, and the limits it has to keep."""

import os
from collections.abc import Callable
from datetime import timedelta

import pytest
from couchbase.collection import Collection
from couchbase.exceptions import (
    CASMismatchException,
    CouchbaseException,
    DocumentExistsException,
    DocumentNotFoundException,
)
from couchbase.options import GetOptions, ReplaceOptions, UpsertOptions

from e2e.conformance.world import eventually

MIB = 1024 * 1024


@pytest.mark.parametrize("size_bytes", [0, 1, 1000, 64 * 1024, MIB, 20 * MIB])
def test_value_comes_back_unchanged(documents: Collection, size_bytes: int) -> None:
    """Values up to 20 MiB round-trip byte for byte."""
    value = os.urandom(size_bytes)
    documents.upsert("key", value, timeout=timedelta(seconds=20))
    assert documents.get("key", timeout=timedelta(seconds=20)).content_as[bytes] == value


def test_value_above_20_mib_is_refused(documents: Collection) -> None:
    """One byte more than 20 MiB is refused and nothing is stored."""
    with pytest.raises(CouchbaseException):
        documents.upsert("key", bytes(20 * MIB + 1), timeout=timedelta(seconds=20))
    assert not documents.exists("key").exists


def test_overwriting_replaces_the_value(documents: Collection) -> None:
    """An upsert of an existing key changes value and CAS."""
    first = documents.upsert("key", b"old")
    second = documents.upsert("key", b"new value")
    assert first.cas != second.cas
    assert documents.get("key").content_as[bytes] == b"new value"


def test_missing_documents(documents: Collection) -> None:
    """Reading, touching, replacing and removing what is not there says so."""
    operations: list[Callable[[], object]] = [
        lambda: documents.get("missing"),
        lambda: documents.touch("missing", timedelta(seconds=10)),
        lambda: documents.replace("missing", b"x"),
        lambda: documents.remove("missing"),
    ]
    for operation in operations:
        with pytest.raises(DocumentNotFoundException):
            operation()
    assert not documents.exists("missing").exists


def test_insert_does_not_overwrite(documents: Collection) -> None:
    """The second insert of a key fails and leaves the first value."""
    documents.insert("key", b"first")
    with pytest.raises(DocumentExistsException):
        documents.insert("key", b"second")
    assert documents.get("key").content_as[bytes] == b"first"


def test_replace_with_stale_cas_fails(documents: Collection) -> None:
    """A CAS from before another write does not match any more."""
    stale = documents.upsert("key", b"one").cas
    documents.upsert("key", b"two")
    with pytest.raises(CASMismatchException):
        documents.replace("key", b"three", ReplaceOptions(cas=stale))


def test_removed_document_is_gone(documents: Collection) -> None:
    """A removed document is neither found nor read."""
    documents.upsert("key", b"value")
    documents.remove("key")
    assert not documents.exists("key").exists
    with pytest.raises(DocumentNotFoundException):
        documents.get("key")


def test_document_expires(documents: Collection) -> None:
    """A document is gone after its expiry."""
    documents.upsert("key", b"value", UpsertOptions(expiry=timedelta(seconds=1)))
    assert documents.exists("key").exists
    eventually(lambda: not documents.exists("key").exists, "the document expires", 10)


def test_touch_prolongs_and_overwriting_clears_expiry(documents: Collection) -> None:
    """Touch and get-and-touch set a new expiry; a plain upsert removes it."""
    with_expiry = GetOptions(with_expiry=True)
    documents.upsert("key", b"value", UpsertOptions(expiry=timedelta(seconds=60)))
    near = documents.get("key", with_expiry).expiryTime
    documents.touch("key", timedelta(hours=1))
    later = documents.get("key", with_expiry).expiryTime
    assert (later - near).total_seconds() > 3000
    result = documents.get_and_touch("key", timedelta(hours=2))
    assert result.content_as[bytes] == b"value"
    assert documents.get("key", with_expiry).expiryTime > later
    documents.upsert("key", b"value")
    assert documents.get("key", with_expiry).expiryTime is None


def test_expiry_of_many_days(documents: Collection) -> None:
    """Beyond 30 days the wire carries a Unix time; the document lives."""
    documents.upsert("key", b"value", UpsertOptions(expiry=timedelta(days=45)))
    assert documents.get("key").content_as[bytes] == b"value"


def test_many_documents_at_once(documents: Collection) -> None:
    """Multi operations reach all nodes and report missing keys one by one."""
    values = {f"key-{number}": os.urandom(2000) for number in range(200)}
    assert documents.upsert_multi(values).all_ok
    found = documents.get_multi([*values, "missing"])
    assert not found.all_ok
    assert {key: result.content_as[bytes] for key, result in found.results.items()} == values
    assert isinstance(found.exceptions["missing"], DocumentNotFoundException)


def test_key_length_limit(documents: Collection) -> None:
    """In a named collection a key has 246 bytes at most."""
    documents.upsert("k" * 246, b"value")
    assert documents.exists("k" * 246).exists
    with pytest.raises(CouchbaseException):
        documents.upsert("k" * 247, b"value")
