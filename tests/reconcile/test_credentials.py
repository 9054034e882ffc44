"""The generated Secret on a real API server."""

from __future__ import annotations

import base64
import secrets
import string
from typing import TYPE_CHECKING, Any

import pytest

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.verdict import Refuse
from couchbase_lm_operator.io import credentials
from couchbase_lm_operator.io.couchbase.access import Credentials

if TYPE_CHECKING:
    from couchbase_lm_operator.io.cluster import Cluster

NAME = "demo-couchbase"


@pytest.fixture
async def namespace(cluster: Cluster) -> str:
    name = f"test-{secrets.token_hex(4)}"
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await cluster.api.request("POST", "/api/v1/namespaces", body=manifest)
    return name


def resource(namespace: str, uid: str = "11111111-1111-1111-1111-111111111111") -> dict[str, Any]:
    return {"metadata": {"name": "demo", "namespace": namespace, "uid": uid}}


async def test_a_password_is_made_once_and_kept(cluster: Cluster, namespace: str) -> None:
    first = await credentials.ensure(cluster, resource(namespace), NAME, "user")
    live = await cluster.get("Secret", namespace, NAME)
    assert live is not None
    assert credentials.read(live) == first
    assert live["metadata"]["ownerReferences"][0]["uid"] == resource(namespace)["metadata"]["uid"]
    assert live["metadata"]["labels"]["app.kubernetes.io/instance"] == "demo"

    version = live["metadata"]["resourceVersion"]
    assert await credentials.ensure(cluster, resource(namespace), NAME, "user") == first
    assert await cluster.resource_version("Secret", namespace, NAME) == version


async def test_another_user_name_keeps_the_password(cluster: Cluster, namespace: str) -> None:
    first = await credentials.ensure(cluster, resource(namespace), NAME, "user")
    second = await credentials.ensure(cluster, resource(namespace), NAME, "renamed")
    assert isinstance(first, Credentials)
    assert second == Credentials("renamed", first.password)
    assert credentials.read(await cluster.get("Secret", namespace, NAME)) == second


async def test_a_lost_or_damaged_secret_is_made_whole(cluster: Cluster, namespace: str) -> None:
    first = await credentials.ensure(cluster, resource(namespace), NAME, "user")
    live = await cluster.get("Secret", namespace, NAME)
    assert live is not None
    await cluster.delete(live)
    second = await credentials.ensure(cluster, resource(namespace), NAME, "user")
    assert second != first

    live = await cluster.get("Secret", namespace, NAME)
    assert live is not None
    damaged = {**live, "data": {"username": live["data"]["username"]}}
    await cluster.api.request("PUT", f"/api/v1/namespaces/{namespace}/secrets/{NAME}", body=damaged)
    third = await credentials.ensure(cluster, resource(namespace), NAME, "user")
    assert isinstance(third, Credentials)
    assert credentials.read(await cluster.get("Secret", namespace, NAME)) == third


async def test_somebody_elses_secret_is_left_alone(cluster: Cluster, namespace: str) -> None:
    theirs = {"password": base64.b64encode(b"theirs").decode()}
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": NAME, "namespace": namespace},
        "data": theirs,
    }
    await cluster.create(manifest)
    refusal = await credentials.ensure(cluster, resource(namespace), NAME, "user")
    assert isinstance(refusal, Refuse)
    assert refusal.reason is Reason.CHILD_NOT_OURS
    live = await cluster.get("Secret", namespace, NAME)
    assert live is not None
    assert live["data"] == theirs


def test_passwords_meet_the_strictest_policy_and_need_no_quoting() -> None:
    made = {credentials.generate_password() for _ in range(50)}
    assert len(made) == 50
    for password in made:
        assert len(password) == 100
        assert set(password) <= set(string.ascii_letters + string.digits + "-_")
        for kind in (string.ascii_lowercase, string.ascii_uppercase, string.digits, "-_"):
            assert set(password) & set(kind)


def test_credentials_hide_the_password() -> None:
    assert "pw" not in repr(Credentials("user", "pw")) + str(Credentials("user", "pw"))
