"""A real API server for the shells that write to it."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest

from couchbase_lm_operator.io.cluster import Cluster
from couchbase_lm_operator.io.kube_api import KubeApi
from tests.apiserver import ApiServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


@pytest.fixture(scope="module")
def apiserver() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
async def cluster(apiserver: ApiServer) -> AsyncIterator[Cluster]:
    async with KubeApi(apiserver.kubeconfig) as api:
        yield Cluster(api)


@pytest.fixture
async def namespace(cluster: Cluster) -> str:
    name = f"test-{secrets.token_hex(4)}"
    await cluster.api.request(
        "POST", "/api/v1/namespaces", body={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    )
    return name
