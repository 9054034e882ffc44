"""The demo notices when the bucket holds other objects than status predicts."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.demo.bucket import check_documents
from e2e.demo.kube import DemoError

CHUNKS, RANKS, OBJECT_BYTES = 3, 2, (400, 100)
RESOURCE: dict[str, Any] = {
    "spec": {"model": {"id": "org/model"}},
    "status": {
        "couchbase": {"keyPrefix": "0123:"},
        "model": {"objectBytes": list(OBJECT_BYTES), "ranks": RANKS, "documentsPerChunk": 2 * RANKS * 2},
    },
}


def _objects() -> list[dict[str, Any]]:
    return [
        {
            "key": f"0123:org/model@0x0201{rank:02x}01@{group:x}@{chunk:064x}",
            "bytes": size,
            "fields": [],
            "isSumRight": True,
        }
        for chunk in range(CHUNKS)
        for rank in range(RANKS)
        for group, size in enumerate(OBJECT_BYTES)
    ]


def _check(objects: list[dict[str, Any]]) -> dict[str, Any]:
    keys = {key for item in objects for key in (item["key"], f"{item['key']}::shard::0")}
    probed = {"objects": objects, "orphans": [], "refusals": {"create a bucket": "HTTP 403"}}
    return check_documents(RESOURCE, keys, CHUNKS, probed)


def test_what_status_predicts_is_accepted() -> None:
    facts = _check(_objects())
    assert (facts["objects"], facts["objectBytes"]) == (12, [400, 100])


def test_an_object_of_another_size_is_noticed() -> None:
    objects = _objects()
    objects[0]["bytes"] = 401
    with pytest.raises(DemoError, match=r"object group 0 has objects of \[401\] bytes, status predicts 400"):
        _check(objects)


def test_an_object_group_too_few_or_too_many_is_noticed() -> None:
    only_first = [item for item in _objects() if "@0@" in item["key"]]
    with pytest.raises(DemoError, match="object group 1 has 0 objects, status predicts 6"):
        _check(only_first)
    moved = [{**item, "key": item["key"].replace("@1@", "@a@")} for item in _objects()]
    with pytest.raises(DemoError, match="there is an object group 10, status predicts 2"):
        _check(moved)
