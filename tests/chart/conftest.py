"""Helm and kubectl as users call them, against a private API server or the local node."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest

from e2e.cluster import images, lifecycle, paths
from e2e.demo.kube import Kube
from e2e.images.store import archive
from tests.apiserver import ApiServer

if TYPE_CHECKING:
    from collections.abc import Iterator

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted"}


@pytest.fixture(scope="session")
def apiserver() -> Iterator[ApiServer]:
    """A private API server: RBAC, CRDs and admission policies work in it, pods do not run."""
    with ApiServer() as server:
        yield server


@pytest.fixture(scope="session")
def private(apiserver: ApiServer) -> Kube:
    return Kube(apiserver.kubeconfig)


@pytest.fixture(scope="session")
def node() -> Kube:
    """The local node with the operator's image on it; without it the tests fail, they are not skipped."""
    assert lifecycle.is_healthy(), "the local node does not run or is not healthy: `make cluster` first"
    images.load(archive("operator"))
    return Kube(paths.kubeconfig())


@pytest.fixture
def private_namespace(private: Kube) -> Iterator[str]:
    yield from _namespace(private)


@pytest.fixture
def namespace(node: Kube) -> Iterator[str]:
    """A namespace of the test's own on the node, under Pod Security `restricted`."""
    yield from _namespace(node)


def _namespace(kube: Kube) -> Iterator[str]:
    name = f"chart-test-{secrets.token_hex(4)}"
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": RESTRICTED}})
    yield name
    kube.kubectl("delete", "namespace", name, "--wait=false")
