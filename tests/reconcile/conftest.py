"""A real API server for the session; a namespace, a Couchbase and an operator for each test."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest

from couchbase_lm_operator.io.cluster import Cluster
from couchbase_lm_operator.io.kube_api import KubeApi
from e2e.couchbase_emulator import running_emulator
from tests.apiserver import ApiServer
from tests.reconcile.world import World, install_definition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from e2e.couchbase_emulator import RunningEmulator


@pytest.fixture(scope="session")
def apiserver() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
async def cluster(apiserver: ApiServer) -> AsyncIterator[Cluster]:
    async with KubeApi(apiserver.kubeconfig) as api:
        await install_definition(api)
        yield Cluster(api)


@pytest.fixture
def couchbase() -> Iterator[RunningEmulator]:
    with running_emulator(memory_quota_mib=4096) as emulator:
        yield emulator


@pytest.fixture
async def world(apiserver: ApiServer, cluster: Cluster, couchbase: RunningEmulator) -> AsyncIterator[World]:
    world = World(apiserver, cluster, couchbase, namespace=f"test-{secrets.token_hex(4)}")
    await world.build()
    yield world
    await world.clear()
