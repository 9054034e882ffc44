"""Places of somebody else in the demo's Couchbase, made for a moment, which the generated user must not reach."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator

import httpx

from e2e.demo.kube import DemoError

Place = dict[str, str]
_BUCKET = {"bucketType": "ephemeral", "ramQuota": 100, "replicaNumber": 0, "evictionPolicy": "nruEviction"}
_DEFAULT = "_default"
_PATIENCE_SECONDS = 60


@contextlib.contextmanager
def strange_places(http: httpx.Client, bucket: str, scope: str) -> Iterator[dict[str, Place]]:
    """Make a collection beside ours, a scope beside ours and another bucket; remove them after the block.

    ``http`` is a client of the management interface as administrator. The default collection of our own
    bucket is there anyway.

    Raises:
        DemoError: the bucket did not warm up in time.
        httpx.HTTPStatusError: the server refused to make or to remove one of them.
    """
    name = f"strange-{secrets.token_hex(4)}"
    scopes, others = f"/pools/default/buckets/{bucket}/scopes", f"/pools/default/buckets/{name}/scopes"
    with contextlib.ExitStack() as made:
        http.post(f"{scopes}/{scope}/collections", data={"name": name}).raise_for_status()
        made.callback(_remove, http, f"{scopes}/{scope}/collections/{name}")
        http.post(scopes, data={"name": name}).raise_for_status()
        made.callback(_remove, http, f"{scopes}/{name}")
        collection = http.post(f"{scopes}/{name}/collections", data={"name": name}).raise_for_status()
        http.post("/pools/default/buckets", data={"name": name, **_BUCKET}).raise_for_status()
        made.callback(_remove, http, f"/pools/default/buckets/{name}")
        _wait_until_warm(http, name)
        http.post(f"{scopes}/@ensureManifest/{collection.json()['uid']}").raise_for_status()
        http.get(others).raise_for_status()
        yield {
            "the default collection": {"bucket": bucket, "scope": _DEFAULT, "collection": _DEFAULT},
            "another collection of its scope": {"bucket": bucket, "scope": scope, "collection": name},
            "another scope of its bucket": {"bucket": bucket, "scope": name, "collection": name},
            "another bucket": {"bucket": name, "scope": _DEFAULT, "collection": _DEFAULT},
        }


def _wait_until_warm(http: httpx.Client, bucket: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        answer = http.get(f"/pools/default/buckets/{bucket}")
        nodes = answer.json().get("nodes", []) if answer.is_success else []
        if nodes and all(node["status"] == "healthy" for node in nodes):
            return
        if time.monotonic() > deadline:
            raise DemoError(f"bucket {bucket} is not healthy after {_PATIENCE_SECONDS} s")
        time.sleep(0.2)


def _remove(http: httpx.Client, path: str) -> None:
    http.delete(path).raise_for_status()
