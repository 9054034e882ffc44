"""Runs inside the lmcache container: read documents with the generated user, and try what it must not reach.

Takes one JSON object on the command line and prints one. It knows the storage format from its description
alone and shares no code with the adapter, so that both cannot be wrong in the same way.

What it must not reach exists: the caller made it and names it in ``strange``. An attempt counts as refused only
when the server said no. Couchbase hides a collection without rights like one that does not exist, and a bucket
likewise; the SDK goes on looking for such a collection until its timeout, and tells so in the retry reasons.
"""

import json
import sys
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import xxhash
from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.exceptions import (
    AuthenticationException,
    BucketNotFoundException,
    CollectionNotFoundException,
    CouchbaseException,
    ScopeNotFoundException,
)
from couchbase.options import ClusterOptions, ClusterTimeoutOptions
from couchbase.transcoder import RawBinaryTranscoder, Transcoder

SHARD_MARK = "::shard::"
SERVER_SAID_NO = (
    AuthenticationException,
    BucketNotFoundException,
    CollectionNotFoundException,
    ScopeNotFoundException,
)
UNKNOWN_COLLECTION = "key_value_collection_outdated"


class AnyBytes(Transcoder):  # type: ignore[misc] # the SDK is untyped
    """Hands over the stored bytes, whatever kind of document the flags say it is."""

    def encode_value(self, value: Any) -> Any:
        """Never writes."""
        raise NotImplementedError("this transcoder only reads")

    def decode_value(self, value: bytes, flags: int) -> bytes:  # noqa: ARG002 - the SDK passes it
        """Return the bytes as they are."""
        return bytes(value)


def main() -> None:
    """Check every manifest with its shards, then the limits of the user's rights."""
    task = json.loads(sys.argv[1])
    folder = Path(task["credentials"])
    user, password = (folder / "username").read_text(), (folder / "password").read_text()
    timeouts = ClusterTimeoutOptions(kv_timeout=timedelta(seconds=5))
    cluster = Cluster(
        task["connectionString"], ClusterOptions(PasswordAuthenticator(user, password), timeout_options=timeouts)
    )
    collection = cluster.bucket(task["bucket"]).scope(task["scope"]).collection(task["collection"])
    keys = set(task["keys"])
    result = {
        "objects": [check_object(collection, key, keys) for key in sorted(keys) if SHARD_MARK not in key],
        "orphans": sorted(key for key in keys if SHARD_MARK in key and key.split(SHARD_MARK)[0] not in keys),
        "attempts": attempts(task, cluster, user, password),
    }
    cluster.close()
    print(json.dumps(result))


def attempts(task: dict[str, Any], cluster: Any, user: str, password: str) -> dict[str, dict[str, Any]]:
    """Try what the user must not do; tell for each whether the server refused it, and what it said."""

    def rest(path: str, body: bytes | None = None) -> dict[str, Any]:
        return rest_attempt(task["management"] + path, user, password, body)

    tried = {
        "create a bucket": rest("/pools/default/buckets", b"name=probe&bucketType=ephemeral&ramQuota=100"),
        "list users": rest("/settings/rbac/users"),
    }
    for what, place in task["strange"].items():
        read, write = operations(cluster, place)
        tried[f"read {what}"], tried[f"write {what}"] = attempt(read), attempt(write)
    return tried


def operations(cluster: Any, place: dict[str, str]) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return a read and a write in one collection."""

    def collection() -> Any:
        return cluster.bucket(place["bucket"]).scope(place["scope"]).collection(place["collection"])

    return lambda: collection().get("probe"), lambda: collection().upsert("probe", {})


def check_object(collection: Any, key: str, keys: set[str]) -> dict[str, Any]:
    """Read one manifest and its shards; report sizes, and whether sums and listing agree."""
    manifest = json.loads(collection.get(key, transcoder=AnyBytes()).value)
    names = [f"{key}{SHARD_MARK}{number}" for number in range(manifest["lmcache_shards"])]
    shards = [collection.get(name, transcoder=RawBinaryTranscoder()).value for name in names]
    return {
        "key": key,
        "fields": sorted(manifest),
        "bytes": manifest["bytes"],
        "shardBytes": [len(shard) for shard in shards],
        "areShardsListed": keys.issuperset(names),
        "isSumRight": sum(map(len, shards)) == manifest["bytes"],
        "layout": manifest.get("layout"),
        "areChecksumsRight": manifest.get("xxh3") == [xxhash.xxh3_64_hexdigest(shard) for shard in shards],
    }


def attempt(operation: Callable[[], object]) -> dict[str, Any]:
    """Carry out one operation of the SDK; a document that is not there was looked for, so reading was allowed."""
    try:
        operation()
    except SERVER_SAID_NO as error:
        return {"isRefused": True, "said": type(error).__name__}
    except CouchbaseException as error:
        reasons = getattr(error.error_context, "retry_reasons", None) or ()
        return {"isRefused": UNKNOWN_COLLECTION in reasons, "said": type(error).__name__}
    return {"isRefused": False, "said": "done"}


def rest_attempt(url: str, user: str, password: str, body: bytes | None) -> dict[str, Any]:
    """Send one request to the management interface: only 401 and 403 refuse it."""
    request = urllib.request.Request(url, data=body)
    request.add_header("Authorization", "Basic " + b64encode(f"{user}:{password}".encode()).decode())
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return {"isRefused": False, "said": f"HTTP {answer.status}"}
    except urllib.error.HTTPError as error:
        return {"isRefused": error.code in {401, 403}, "said": f"HTTP {error.code}"}


if __name__ == "__main__":
    main()
