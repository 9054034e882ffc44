"""Fixtures: a target per parameter, a bucket and a collection to work in."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from couchbase.cluster import Cluster
from couchbase.collection import Collection

from e2e.conformance.target import Target, open_target, target_names
from e2e.conformance.world import World


@pytest.fixture(scope="session", params=target_names())
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    """The cluster under test."""
    with open_target(request.param) as opened:
        yield opened


@pytest.fixture(scope="session")
def world(target: Target) -> Iterator[World]:
    """The cluster under test, with everything a test makes removed at the end."""
    with target.http() as http:
        world = World(target, http)
        yield world
        world.clean_up()


@dataclass(frozen=True)
class Place:
    """A collection to work in."""

    bucket: str
    scope: str
    collection: str

    @property
    def path(self) -> str:
        """Parameters of a role for this collection."""
        return f"{self.bucket}:{self.scope}:{self.collection}"

    def open(self, cluster: Cluster) -> Collection:
        """The collection through the SDK."""
        return cluster.bucket(self.bucket).scope(self.scope).collection(self.collection)


@pytest.fixture(scope="session")
def bucket(world: World) -> str:
    """A bucket for the whole session."""
    return world.make_bucket()


@pytest.fixture
def place(world: World, bucket: str) -> Place:
    """A fresh collection."""
    return Place(bucket, *world.make_collection(bucket))


@pytest.fixture(scope="session")
def admin(target: Target) -> Iterator[Cluster]:
    """SDK connection of the administrator."""
    with target.cluster() as cluster:
        yield cluster


@pytest.fixture
def documents(admin: Cluster, place: Place) -> Collection:
    """A fresh collection through the SDK, as administrator."""
    return place.open(admin)
