"""Management REST: buckets, scopes and collections."""

import pytest

from e2e.conformance.world import World, succeed, unique

MIB = 1024 * 1024
BUCKETS = "/pools/default/buckets"


def _errors(world: World, form: dict[str, object], query: str = "", path: str = BUCKETS) -> dict[str, str]:
    response = world.http.post(path + query, data=form)
    assert response.status_code == 400, response.text
    errors: dict[str, str] = response.json()["errors"]
    return errors


def test_bucket_shows_what_was_asked_for(world: World, bucket: str) -> None:
    """Settings come back under REST's own names; quota is per node and for the cluster."""
    shown = succeed(world.http.get(f"{BUCKETS}/{bucket}")).json()
    nodes = len(world.http.get("/pools/default").json()["nodes"])
    assert shown["bucketType"] == "ephemeral"
    assert shown["evictionPolicy"] == "nruEviction"
    assert shown["quota"] == {"rawRAM": 100 * MIB, "ram": 100 * MIB * nodes}
    assert shown["replicaNumber"] == 0
    assert "flush" not in shown["controllers"]
    assert "vBucketServerMap" in shown
    assert "vBucketServerMap" not in world.http.get(f"{BUCKETS}/{bucket}?skipMap=true").json()


def test_ephemeral_default_is_no_eviction(world: World) -> None:
    """Who does not ask for eviction gets a bucket that fills up."""
    name = unique("default")
    form = {"name": name, "bucketType": "ephemeral", "ramQuota": 100, "replicaNumber": 0}
    assert world.http.post(BUCKETS, data=form).status_code == 202
    world.await_bucket(name)
    assert world.http.get(f"{BUCKETS}/{name}").json()["evictionPolicy"] == "noEviction"
    world.drop_bucket(name)


def test_create_answers_202_with_location(world: World) -> None:
    """Creation is accepted before the bucket is usable; unknown parameters pass silently."""
    name = unique("accepted")
    form = {"name": name, "bucketType": "ephemeral", "ramQuota": 100, "replicaNumber": 0, "evictionPolisy": "typo"}
    response = world.http.post(BUCKETS, data=form)
    assert response.status_code == 202
    assert response.content == b""
    assert response.headers["location"].endswith(f"{BUCKETS}/{name}")
    world.await_bucket(name)
    world.drop_bucket(name)
    assert world.http.delete(f"{BUCKETS}/{name}").status_code == 404


@pytest.mark.parametrize(
    ("field", "form"),
    [
        ("name", {"name": "no spaces"}),
        ("name", {"name": ".hidden"}),
        ("name", {"name": ""}),
        ("name", {"name": "x" * 101}),
        ("ramQuota", {"ramQuota": 99}),
        ("ramQuota", {"ramQuota": "much"}),
        ("evictionPolicy", {"evictionPolicy": "valueOnly"}),
        ("replicaNumber", {"replicaNumber": 4}),
        ("bucketType", {"bucketType": "memcached"}),
        ("replicaIndex", {"replicaIndex": 0}),
        ("flushEnabled", {"flushEnabled": "yes"}),
        ("maxTTL", {"maxTTL": -1}),
    ],
)
def test_bad_parameters_name_their_field(world: World, field: str, form: dict[str, object]) -> None:
    """400 with a text under the field, and nothing is created."""
    good = {"name": unique("bad"), "bucketType": "ephemeral", "ramQuota": 100, "replicaNumber": 0}
    assert field in _errors(world, good | form)


def test_quota_too_large_tells_what_is_free(world: World) -> None:
    """The error comes with the summary of memory; `free` is negative."""
    form = {"name": unique("huge"), "bucketType": "ephemeral", "ramQuota": 50_000_000, "replicaNumber": 0}
    response = world.http.post(BUCKETS, data=form)
    assert response.status_code == 400
    body = response.json()
    assert "ramQuota" in body["errors"]
    summary = body["summaries"]["ramSummary"]
    assert summary["free"] == summary["total"] - summary["otherBuckets"] - summary["thisAlloc"] < 0


def test_names_are_unique_whatever_their_case(world: World, bucket: str) -> None:
    """The name of an existing bucket is refused, in capitals too."""
    for name in (bucket, bucket.upper()):
        assert "name" in _errors(world, {"name": name, "bucketType": "ephemeral", "ramQuota": 100})


def test_validation_changes_nothing(world: World) -> None:
    """`just_validate` gives summaries and, unless ignored, the warning about replicas."""
    name, nodes = unique("dry"), len(world.http.get("/pools/default").json()["nodes"])
    form = {"name": name, "bucketType": "ephemeral", "ramQuota": 100, "replicaNumber": 3}
    response = world.http.post(f"{BUCKETS}?just_validate=1&ignore_warnings=1", data=form)
    assert response.status_code == 200
    assert response.json()["summaries"]["ramSummary"]["thisAlloc"] == 100 * MIB * nodes
    if nodes < 4:
        assert "replicaNumber" in _errors(world, form, "?just_validate=1")
    assert world.http.get(f"{BUCKETS}/{name}").status_code == 404


def test_edit_checks_and_applies(world: World) -> None:
    """Edits apply; another type is ignored; conflict resolution must not be sent."""
    name = world.make_bucket()
    path = f"{BUCKETS}/{name}"
    assert world.http.post(path, data={"ramQuota": 110, "flushEnabled": 1}).status_code == 200
    assert world.http.post(path, data={"bucketType": "couchbase", "ramQuota": 120}).status_code == 200
    shown = world.http.get(path).json()
    assert (shown["bucketType"], shown["quota"]["rawRAM"]) == ("ephemeral", 120 * MIB)
    assert "flush" in shown["controllers"]
    assert "conflictResolutionType" in _errors(world, {"conflictResolutionType": "seqno"}, path=path)
    world.drop_bucket(name)


def test_bucket_uuid_guard(world: World) -> None:
    """Reads, edits and deletes with a foreign uuid find nothing."""
    name = world.make_bucket()
    path, wrong = f"{BUCKETS}/{name}", "?bucket_uuid=" + "0" * 32
    uuid = world.http.get(path).json()["uuid"]
    assert world.http.get(path + wrong).status_code == 404
    assert world.http.post(path + wrong, data={"ramQuota": 120}).status_code == 404
    assert world.http.delete(path + wrong).status_code == 404
    assert world.http.get(f"{path}?bucket_uuid={uuid}").status_code == 200
    assert world.http.delete(f"{path}?bucket_uuid={uuid}").status_code == 200


def test_percent_in_a_name_is_escaped_in_paths(world: World) -> None:
    """A bucket named `…%41` is found under `…%2541` and not under what `%41` stands for."""
    name = world.make_bucket(f"{unique('percent')}%41")
    assert world.http.get(f"{BUCKETS}/{name.replace('%', '%25')}").json()["name"] == name
    assert world.http.get(f"{BUCKETS}/{name}").status_code == 404


def test_flush_needs_to_be_enabled(world: World, bucket: str) -> None:
    """Flush of a bucket without it: 400 with a bare `_`."""
    response = world.http.post(f"{BUCKETS}/{bucket}/controller/doFlush")
    assert response.status_code == 400
    assert "_" in response.json()


def test_manifest(world: World, bucket: str) -> None:
    """The manifest uid grows with every change, in hexadecimal; default and system scopes are always there."""
    base = f"{BUCKETS}/{bucket}/scopes"
    before = int(world.http.get(base).json()["uid"], 16)
    scope, collection = world.make_collection(bucket)
    manifest = world.http.get(base).json()
    assert int(manifest["uid"], 16) > before
    scopes = {item["name"]: {found["name"]: found for found in item["collections"]} for item in manifest["scopes"]}
    assert {"_default", scope} <= scopes.keys()
    assert {"uid", "maxTTL"} <= scopes[scope][collection].keys()
    dropped = succeed(world.http.delete(f"{base}/{scope}/collections/{collection}")).json()["uid"]
    assert int(dropped, 16) > int(manifest["uid"], 16)
    succeed(world.http.delete(f"{base}/{scope}"))


def test_collisions_and_absence_of_scopes_and_collections(world: World, bucket: str) -> None:
    """Existing: 400 with a global error that says so; missing: 404."""
    base = f"{BUCKETS}/{bucket}/scopes"
    scope, collection = world.make_collection(bucket)
    for path, name in ((base, scope), (f"{base}/{scope}/collections", collection)):
        assert "already exists" in _errors(world, {"name": name}, path=path)["_"]
    missing = unique("missing")
    for response in (
        world.http.post(f"{base}/{missing}/collections", data={"name": "c"}),
        world.http.delete(f"{base}/{missing}"),
        world.http.delete(f"{base}/{scope}/collections/{missing}"),
        world.http.get(f"{BUCKETS}/{missing}/scopes"),
        world.http.post(f"{BUCKETS}/{missing}/scopes", data={"name": "s"}),
    ):
        assert response.status_code == 404
    assert world.http.delete(f"{base}/_default").status_code == 400


@pytest.mark.parametrize("name", ["_underscore", "%percent", "with space", "", "x" * 252, "dot.ted"])
def test_bad_names_of_scopes_and_collections(world: World, bucket: str, name: str) -> None:
    """400 on the field `name`."""
    assert "name" in _errors(world, {"name": name}, path=f"{BUCKETS}/{bucket}/scopes")


def test_unknown_parameters_of_collections_are_refused(world: World, bucket: str) -> None:
    """Unlike buckets, scopes and collections do not take what they do not know."""
    assert _errors(world, {"name": unique("s"), "colour": "red"}, path=f"{BUCKETS}/{bucket}/scopes")


def test_ensure_manifest_waits_for_all_nodes(world: World, bucket: str) -> None:
    """200 for a manifest that all have, 504 for one that nobody has in time."""
    base = f"{BUCKETS}/{bucket}/scopes"
    uid = world.http.get(base).json()["uid"]
    assert world.http.post(f"{base}/@ensureManifest/{uid}").status_code == 200
    assert world.http.post(f"{base}/@ensureManifest/ffffff", data={"timeout": 100}).status_code == 504
