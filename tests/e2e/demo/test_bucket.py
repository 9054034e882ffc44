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
            "layout": f"{group:016x}",
            "isSumRight": True,
        }
        for chunk in range(CHUNKS)
        for rank in range(RANKS)
        for group, size in enumerate(OBJECT_BYTES)
    ]


def _check(objects: list[dict[str, Any]], attempts: dict[str, Any] | None = None) -> dict[str, Any]:
    keys = {key for item in objects for key in (item["key"], f"{item['key']}::shard::0")}
    probed = {"objects": objects, "orphans": [], "attempts": attempts or {}}
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


@pytest.mark.parametrize("layout", [None, "", "0123", "0123456789abcdeg", 7])
def test_a_manifest_without_a_layout_is_noticed(layout: object) -> None:
    objects = _objects()
    objects[0]["layout"] = layout
    with pytest.raises(DemoError, match=r"the manifest's layout is .*, not 16 hexadecimal digits"):
        _check(objects)


def test_two_layouts_in_one_object_group_are_noticed() -> None:
    objects = _objects()
    objects[-1]["layout"] = "f" * 16
    with pytest.raises(DemoError, match="object group 1 has objects of several layouts: 0000000000000001, ffff"):
        _check(objects)


def test_what_nothing_refused_is_noticed_and_a_refusal_is_reported() -> None:
    refused = {"list users": {"isRefused": True, "said": "HTTP 403"}}
    assert _check(_objects(), refused)["userIsRefused"] == {"list users": "HTTP 403"}
    failed = {"list users": {"isRefused": False, "said": "HTTP 500"}}
    with pytest.raises(DemoError, match="nothing refused the generated user to list users: HTTP 500"):
        _check(_objects(), {**refused, **failed})
