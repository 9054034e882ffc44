"""Buckets, collections and users through the management API of the SDK."""

import pytest
from couchbase.cluster import Cluster
from couchbase.exceptions import (
    BucketAlreadyExistsException,
    BucketDoesNotExistException,
    CollectionAlreadyExistsException,
    CollectionNotFoundException,
    ScopeAlreadyExistsException,
    ScopeNotFoundException,
    UserNotFoundException,
)
from couchbase.management.buckets import BucketSettings, BucketType, CreateBucketSettings, EvictionPolicyType
from couchbase.management.users import Role, User

from e2e.conformance.conftest import Place
from e2e.conformance.world import PASSWORD, World, eventually, unique


def test_bucket_life_cycle(admin: Cluster, world: World) -> None:
    """Create, read, change and drop a bucket."""
    buckets = admin.buckets()
    name = unique("sdk")
    settings = CreateBucketSettings(
        name=name,
        bucket_type=BucketType.EPHEMERAL,
        ram_quota_mb=100,
        num_replicas=0,
        eviction_policy=EvictionPolicyType.NOT_RECENTLY_USED,
    )
    buckets.create_bucket(settings)
    world.await_bucket(name)
    with pytest.raises(BucketAlreadyExistsException):
        buckets.create_bucket(settings)
    found = buckets.get_bucket(name)
    assert (found.bucket_type, found.ram_quota_mb) == (BucketType.EPHEMERAL, 100)
    assert found.eviction_policy == EvictionPolicyType.NOT_RECENTLY_USED
    buckets.update_bucket(BucketSettings(name=name, ram_quota_mb=128, flush_enabled=True))
    assert buckets.get_bucket(name).ram_quota_mb == 128
    assert name in [bucket.name for bucket in buckets.get_all_buckets()]
    admin.bucket(name).default_collection().upsert("key", b"value")
    buckets.flush_bucket(name)
    eventually(lambda: not admin.bucket(name).default_collection().exists("key").exists, "the flush is done")
    buckets.drop_bucket(name)
    with pytest.raises(BucketDoesNotExistException):
        buckets.get_bucket(name)


def test_scopes_and_collections(admin: Cluster, bucket: str) -> None:
    """Create, list and drop scopes and collections, with the error for each collision."""
    collections = admin.bucket(bucket).collections()
    scope, name = unique("scope"), unique("collection")
    collections.create_scope(scope)
    with pytest.raises(ScopeAlreadyExistsException):
        collections.create_scope(scope)
    with pytest.raises(ScopeNotFoundException):
        collections.create_collection(unique("missing"), name)
    collections.create_collection(scope, name)
    with pytest.raises(CollectionAlreadyExistsException):
        collections.create_collection(scope, name)
    listed = {item.name: [found.name for found in item.collections] for item in collections.get_all_scopes()}
    assert listed[scope] == [name]
    assert "_default" in listed
    collections.drop_collection(scope, name)
    with pytest.raises(CollectionNotFoundException):
        collections.drop_collection(scope, name)
    collections.drop_scope(scope)
    assert scope not in [item.name for item in collections.get_all_scopes()]


def test_user_life_cycle(admin: Cluster, place: Place) -> None:
    """Create, read and drop a user with roles on a collection."""
    users = admin.users()
    username = unique("user")
    roles = [Role(name, place.bucket, place.scope, place.collection) for name in ("data_reader", "data_writer")]
    users.upsert_user(User(username=username, password=PASSWORD, display_name="someone", roles=roles))
    found = users.get_user(username).user
    assert found.display_name == "someone"
    assert {(role.name, role.bucket, role.scope, role.collection) for role in found.roles} == {
        (role.name, role.bucket, role.scope, role.collection) for role in roles
    }
    users.drop_user(username)
    with pytest.raises(UserNotFoundException):
        users.get_user(username)
