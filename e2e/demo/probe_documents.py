"""Runs inside the lmcache container: read documents with the generated user, and try what it must not reach.

Takes one JSON object on the command line and prints one. It knows the storage format from its description
alone and shares no code with the adapter, so that both cannot be wrong in the same way.
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
from couchbase.exceptions import CouchbaseException
from couchbase.options import ClusterOptions, ClusterTimeoutOptions
from couchbase.transcoder import RawBinaryTranscoder, Transcoder

SHARD_MARK = "::shard::"


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
    bucket = cluster.bucket(task["bucket"])
    collection = bucket.scope(task["scope"]).collection(task["collection"])
    keys = set(task["keys"])

    def rest(path: str, body: bytes | None = None) -> str:
        return rest_refusal(task["management"] + path, user, password, body)

    result = {
        "objects": [check_object(collection, key, keys) for key in sorted(keys) if SHARD_MARK not in key],
        "orphans": sorted(key for key in keys if SHARD_MARK in key and key.split(SHARD_MARK)[0] not in keys),
        "refusals": {
            "read another collection": refusal(lambda: bucket.default_collection().get("probe")),
            "write another collection": refusal(lambda: bucket.default_collection().upsert("probe", {})),
            "create a bucket": rest("/pools/default/buckets", b"name=probe&bucketType=ephemeral&ramQuota=100"),
            "list users": rest("/settings/rbac/users"),
        },
    }
    cluster.close()
    print(json.dumps(result))


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
        "areChecksumsRight": manifest.get("xxh3") == [xxhash.xxh3_64_hexdigest(shard) for shard in shards],
    }


def refusal(attempt: Callable[[], object]) -> str:
    """Return the name of the SDK's error, or an empty string when the attempt was allowed."""
    try:
        attempt()
    except CouchbaseException as error:
        return type(error).__name__
    return ""


def rest_refusal(url: str, user: str, password: str, body: bytes | None) -> str:
    """Return the HTTP status of a refused request, or an empty string when it was allowed."""
    request = urllib.request.Request(url, data=body)
    request.add_header("Authorization", "Basic " + b64encode(f"{user}:{password}".encode()).decode())
    try:
        with urllib.request.urlopen(request, timeout=10):
            return ""
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code}"


if __name__ == "__main__":
    main()
