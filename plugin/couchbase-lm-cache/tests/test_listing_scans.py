"""Lists of stored keys from a bucket that can be scanned, page by page.

The SDK holds Python's lock while it begins a scan, so the emulator runs in a process of its own here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from conftest import PASSWORD, USERNAME
from lmcache.v1.distributed.api import ObjectKey
from lmcache_parts import KIB, MODEL, Driver, L1Memory, create_adapter, key, keys

from couchbase_lm_cache import scanning

BUCKET, ADMINISTRATOR = "lasting", ("Administrator", "password")


@dataclass(frozen=True)
class Scannable:
    """A bucket with a disk, whose documents can be scanned."""

    connection_string: str

    def params(self, transport: str) -> dict[str, Any]:
        return {
            "connection_string": self.connection_string,
            "username": USERNAME,
            "password": PASSWORD,
            "bucket_name": BUCKET,
            "key_prefix": f"{transport}:",
            "transport": transport,
        }


@pytest.fixture(scope="module")
def scannable() -> Iterator[Scannable]:
    command = [sys.executable, "-m", "e2e.couchbase_emulator", "--nodes", "3", "--mgmt-port", "0", "--kv-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            found = json.loads(process.stdout.readline())
            with httpx.Client(base_url=found["management"][0], auth=ADMINISTRATOR) as rest:
                bucket = {"name": BUCKET, "bucketType": "couchbase", "ramQuota": 200, "storageBackend": "couchstore"}
                rest.post("/pools/default/buckets", data={**bucket, "replicaNumber": 0}).raise_for_status()
                user = {"password": PASSWORD, "roles": f"data_reader[{BUCKET}],data_writer[{BUCKET}]"}
                rest.put(f"/settings/rbac/users/local/{USERNAME}", data=user).raise_for_status()
            yield Scannable(found["connectionString"])
        finally:
            process.terminate()


@pytest.fixture(params=["direct", "sdk"])
def driver(scannable: Scannable, request: pytest.FixtureRequest) -> Iterator[Driver]:
    driver = Driver(create_adapter(scannable.params(request.param)))
    yield driver
    driver.adapter.close()


def listed(driver: Driver, page_size: int) -> list[ObjectKey]:
    found, cursor = [], None
    while True:
        page = driver.adapter.list_l2_keys(MODEL, page_size=page_size, cursor=cursor)
        assert len(page.entries) <= page_size
        found += [entry.key.to_object_key() for entry in page.entries]
        cursor = page.next_page_token
        if cursor is None:
            return found


def test_objects_are_listed_once_without_their_shards_and_without_other_models(driver: Driver, l1: L1Memory) -> None:
    wanted = keys(7)
    assert driver.store(wanted, l1.filled(*[3 * KIB] * 7)).is_successful()
    assert driver.store([key(1, model="another/model")], l1.filled(KIB)).is_successful()
    for page_size in (2, 7, 100):
        assert sorted(listed(driver, page_size), key=str) == sorted(wanted, key=str)
    driver.adapter.delete(wanted[:3])
    assert sorted(listed(driver, 2), key=str) == sorted(wanted[3:], key=str)


def test_one_scan_makes_many_pages(driver: Driver, l1: L1Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = keys(20, first=100)
    assert driver.store(wanted, l1.filled(*[KIB] * 20)).is_successful()
    scans, scan = [], scanning.scan

    def counted(*arguments: Any) -> Iterator[str]:
        scans.append(arguments)
        return scan(*arguments)

    monkeypatch.setattr(scanning, "scan", counted)
    assert set(wanted) <= set(listed(driver, 7))
    assert len(scans) == 1
    everything = listed(driver, 100)
    scans.clear()
    assert listed(driver, 1) == everything
    assert len(scans) == -(-len(everything) // 16), "what a scan may keep is bounded"
    first, third = driver.adapter.list_l2_keys(MODEL, page_size=2), driver.adapter.list_l2_keys(MODEL, page_size=3)
    again = driver.adapter.list_l2_keys(MODEL, page_size=2, cursor=first.next_page_token)
    assert [entry.key.to_object_key() for entry in again.entries] == everything[2:4]
    assert len(third.entries) == 3
