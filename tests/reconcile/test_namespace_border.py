"""A resource reaches objects of its own namespace only, also where the CRD that is installed is an older one."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from couchbase_lm_operator import names
from couchbase_lm_operator.api.crd import crd
from couchbase_lm_operator.io.kube_api import KINDS
from tests.reconcile.world import install_definition, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from couchbase_lm_operator.io.cluster import Cluster
    from tests.reconcile.world import World

_DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + f"{names.PLURAL}.{names.GROUP}"


@pytest.fixture
async def _crd_without_patterns(world: World) -> AsyncIterator[None]:
    """Serve a CRD that takes any text as the name of an object, as the first one did."""
    api = world.cluster.api
    found = await api.request("GET", _DEFINITION)
    found["spec"] = _without_patterns(copy.deepcopy(crd()["spec"]))
    await api.request("PUT", _DEFINITION, body=found)

    async def is_taken() -> bool:
        try:
            await world.create("probe", couchbase__adminSecretRef={"name": "a/b"})
        except Exception as error:  # noqa: BLE001 - refused until the API server serves the new schema
            return "already exists" in str(error)
        return True

    await until(is_taken)
    await world.delete(names.KIND, "probe")
    yield
    await install_definition(api)


def _without_patterns(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_patterns(value) for key, value in node.items() if key != "pattern"}
    return [_without_patterns(each) for each in node] if isinstance(node, list) else node


@pytest.mark.usefixtures("_crd_without_patterns")
async def test_a_name_that_is_a_path_opens_no_secret_of_another_namespace(world: World) -> None:
    others = f"{world.namespace}-others"
    await world.cluster.api.request(
        "POST",
        KINDS["Namespace"].path(),
        body={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": others}},
    )
    own, world.namespace = world.namespace, others
    await world.set_admin_secret()
    world.namespace = own
    before = world.couchbase_mutations()
    async with world.operator():
        await world.create(couchbase__adminSecretRef={"name": f"../../{others}/secrets/cb-admin"})
        found = await world.until_condition("Ready", "False", "InvalidSpec")
        assert "spec.couchbase.adminSecretRef.name" in found["message"]
        await world.edit(spec={"couchbase": {"adminSecretRef": {"name": "cb-admin"}}})
        await world.until_condition("CredentialsReady", "True")
    assert world.couchbase_mutations() != before


@pytest.mark.usefixtures("_crd_without_patterns")
async def test_beside_a_spec_that_cannot_be_used_a_new_operator_does_not_know_the_cache(world: World) -> None:
    async with world.operator():
        await world.serve()
    await world.edit(spec={"couchbase": {"adminSecretRef": {"name": "a/b"}}})
    async with world.operator():
        await world.until_condition("Ready", "False", "InvalidSpec")
        found = await world.until_condition("CacheHealthy", "Unknown", "CacheNotProbed")
        assert "specification cannot be used" in found["message"]


@pytest.mark.parametrize("name", ["../x", "..", ".", "a/b", "a%2Fb", "a?b", "a b"])
async def test_no_name_leads_to_another_path(cluster: Cluster, name: str) -> None:
    with pytest.raises(ValueError, match="is not the name of an object"):
        await cluster.get("Secret", "default", name)


@pytest.mark.usefixtures("_crd_without_patterns")
async def test_what_cannot_be_removed_any_more_is_told(world: World) -> None:
    async with world.operator():
        await world.serve(couchbase__bucket={"reclaimPolicy": "Delete"})
        await world.edit(spec={"couchbase": {"adminSecretRef": {"name": "a/b"}}})
        await world.until_condition("Ready", "False", "InvalidSpec")
        await world.delete(names.KIND, "demo")

        async def is_gone() -> bool:
            return await world.cluster.get(names.KIND, world.namespace, "demo") is None

        await until(is_gone)
        events, _ = await world.cluster.objects("Event", world.namespace)
        (told,) = [each["message"] for each in events if each["reason"] == "RemovalAbandoned"]
        assert "specification" in told
