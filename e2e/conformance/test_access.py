"""Who may do what with documents, and how refusals look through the SDK."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from couchbase.collection import Collection
from couchbase.exceptions import (
    AmbiguousTimeoutException,
    AuthenticationException,
    BucketNotFoundException,
    CollectionNotFoundException,
    CouchbaseException,
    DocumentNotFoundException,
    UnAmbiguousTimeoutException,
)

from e2e.conformance.conftest import Place
from e2e.conformance.target import Target
from e2e.conformance.world import PASSWORD, World, eventually, succeed, unique

_TIMEOUTS = (AmbiguousTimeoutException, UnAmbiguousTimeoutException)
_SHORT = timedelta(seconds=1.5)


def _refused(operation: Callable[[], object], *errors: type[Exception]) -> bool:
    try:
        operation()
    except errors:
        return True
    except CouchbaseException:
        return False
    return False


def _works(operation: Callable[[], object]) -> bool:
    try:
        operation()
    except CouchbaseException:
        return False
    return True


@pytest.fixture
def both(place: Place) -> str:
    """Roles to read and write the collection."""
    return f"data_reader[{place.path}],data_writer[{place.path}]"


def test_reader_reads_and_does_not_write(target: Target, world: World, place: Place, documents: Collection) -> None:
    """`data_reader` alone is refused every mutation."""
    documents.upsert("key", b"value")
    with target.cluster(world.make_user(f"data_reader[{place.path}]"), PASSWORD) as cluster:
        mine = place.open(cluster)
        assert mine.get("key").content_as[bytes] == b"value"
        operations: list[Callable[[], object]] = [
            lambda: mine.upsert("key", b"other"),
            lambda: mine.remove("key"),
            lambda: mine.touch("key", timedelta(seconds=10)),
        ]
        for operation in operations:
            with pytest.raises(AuthenticationException):
                operation()
    assert documents.get("key").content_as[bytes] == b"value"


def test_writer_writes_and_does_not_read(target: Target, world: World, place: Place, documents: Collection) -> None:
    """`data_writer` alone is refused every read."""
    with target.cluster(world.make_user(f"data_writer[{place.path}]"), PASSWORD) as cluster:
        mine = place.open(cluster)
        mine.upsert("key", b"value")
        with pytest.raises(AuthenticationException):
            mine.get("key")
        with pytest.raises(AuthenticationException):
            mine.get_and_touch("key", timedelta(seconds=10))
    assert documents.get("key").content_as[bytes] == b"value"


def test_foreign_collection_looks_like_a_missing_one(
    target: Target, world: World, bucket: str, place: Place, both: str
) -> None:
    """Without any right on a collection its name is not even known: the SDK runs into its timeout."""
    other = Place(bucket, *world.make_collection(bucket))
    with target.cluster(world.make_user(both), PASSWORD) as cluster:
        assert _works(lambda: place.open(cluster).upsert("key", b"value"))
        with pytest.raises(_TIMEOUTS):
            other.open(cluster).get("key", timeout=_SHORT)
        with pytest.raises((CollectionNotFoundException, *_TIMEOUTS)):
            cluster.bucket(bucket).default_collection().upsert("key", b"value", timeout=_SHORT)


def test_wider_roles_reach_further(target: Target, world: World, bucket: str, place: Place) -> None:
    """Roles on a scope reach its collections, roles on the bucket all."""
    sibling = Place(bucket, *world.make_collection(bucket, place.scope))
    stranger = Place(bucket, *world.make_collection(bucket))
    on_scope = f"{bucket}:{place.scope}"
    with target.cluster(world.make_user(f"data_writer[{on_scope}]"), PASSWORD) as cluster:
        sibling.open(cluster).upsert("key", b"value")
        with pytest.raises(_TIMEOUTS):
            stranger.open(cluster).upsert("key", b"value", timeout=_SHORT)
    with target.cluster(world.make_user(f"data_writer[{bucket}]"), PASSWORD) as cluster:
        stranger.open(cluster).upsert("key", b"value")


def test_wrong_password(target: Target, world: World, both: str) -> None:
    """A wrong password is refused at connect."""
    user = world.make_user(both)
    with pytest.raises((AuthenticationException, *_TIMEOUTS)), target.cluster(user, "wrong-Password1") as cluster:
        cluster.ping()


def test_foreign_bucket_cannot_be_opened(target: Target, world: World, both: str) -> None:
    """Without rights on a bucket opening it fails like a missing one."""
    other = world.make_bucket()
    user = world.make_user(both)
    for host, port in world.data_addresses():
        with world.wire(host, port) as client:
            assert client.login(user, PASSWORD) == 0
            assert client.select_bucket(other) == 0x24
            assert client.select_bucket(unique("missing")) == 0x24
    with pytest.raises((BucketNotFoundException, *_TIMEOUTS)), target.cluster(user, PASSWORD) as cluster:
        cluster.bucket(other).default_collection().get("key", timeout=_SHORT)


def test_role_changes_reach_live_connections(target: Target, world: World, place: Place, both: str) -> None:
    """Taking a role away stops a connected client, giving it back lets it go on."""
    user = world.make_user(both)
    with target.cluster(user, PASSWORD) as cluster:
        mine = place.open(cluster)
        mine.upsert("key", b"value")
        succeed(world.http.put(f"/settings/rbac/users/local/{user}", data={"roles": f"data_reader[{place.path}]"}))
        eventually(lambda: _refused(lambda: mine.upsert("key", b"x"), AuthenticationException), "writes are refused")
        assert mine.get("key").content_as[bytes] == b"value"
        succeed(world.http.put(f"/settings/rbac/users/local/{user}", data={"roles": both}))
        eventually(lambda: _works(lambda: mine.upsert("key", b"again")), "writes work again")


def test_password_change_leaves_live_connections_alone(target: Target, world: World, place: Place, both: str) -> None:
    """After a password change the connected client goes on, a new one needs the new password."""
    user = world.make_user(both)
    with target.cluster(user, PASSWORD) as cluster:
        mine = place.open(cluster)
        mine.upsert("key", b"value")
        changed = {"password": "another-Password-2!", "roles": both}
        succeed(world.http.put(f"/settings/rbac/users/local/{user}", data=changed))
        world.await_login(user, changed["password"])
        for host, port in world.data_addresses():
            with world.wire(host, port) as client:
                assert client.login(user, PASSWORD) == 0x20
        assert mine.get("key").content_as[bytes] == b"value"


def test_deleted_user_loses_everything(target: Target, world: World, place: Place, both: str) -> None:
    """A connected client of a deleted user is refused, and cannot log in again."""
    user = world.make_user(both)
    host, port = world.data_addresses()[0]
    with target.cluster(user, PASSWORD) as cluster:
        mine = place.open(cluster)
        mine.upsert("key", b"value")
        succeed(world.http.delete(f"/settings/rbac/users/local/{user}"))
        eventually(
            lambda: _refused(lambda: mine.get("key", timeout=_SHORT), AuthenticationException, *_TIMEOUTS),
            "reads are refused",
        )

    def refused() -> bool:
        with world.wire(host, port) as client:
            return client.login(user, PASSWORD) == 0x20

    eventually(refused, "logins are refused")


def test_recreated_collection_needs_new_roles(target: Target, world: World, place: Place, both: str) -> None:
    """Roles are pinned to the collection: its namesake is another one until the user is written again."""
    user = world.make_user(both)
    base = f"/pools/default/buckets/{place.bucket}/scopes/{place.scope}/collections"
    with target.cluster(user, PASSWORD) as cluster:
        place.open(cluster).upsert("key", b"value")
    dropped = succeed(world.http.delete(f"{base}/{place.collection}")).json()["uid"]
    world.ensure_manifest(place.bucket, dropped)
    world.make_collection(place.bucket, place.scope, name=place.collection)
    assert world.http.get(f"/settings/rbac/users/local/{user}").json()["roles"] == []
    with target.cluster(user, PASSWORD) as cluster, pytest.raises((BucketNotFoundException, *_TIMEOUTS)):
        place.open(cluster).get("key", timeout=_SHORT)
    succeed(world.http.put(f"/settings/rbac/users/local/{user}", data={"roles": both}))
    world.await_login(user, PASSWORD)

    def missing() -> bool:
        with target.cluster(user, PASSWORD) as cluster:
            return _refused(lambda: place.open(cluster).get("key", timeout=_SHORT), DocumentNotFoundException)

    eventually(missing, "the new collection can be read and is empty")
