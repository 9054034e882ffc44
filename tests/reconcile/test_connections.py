"""Couchbase reached in other ways: a user that exists already, and TLS with a CA of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from e2e.couchbase_emulator import running_emulator
from tests.reconcile.world import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.reconcile.world import World


async def test_an_external_user_is_only_checked(world: World) -> None:
    roles = "data_reader[kv:cache:demo],data_writer[kv:cache:demo]"
    world.couchbase.create_bucket("kv")
    world.couchbase.create_collection("kv", "cache", "demo")
    world.couchbase.create_user("engines", "their-password", roles)
    changes: dict[str, Any] = {
        "couchbase__adminSecretRef": None,
        "couchbase__managementEndpoints": [],
        "couchbase__credentialsSecretRef": {"name": "engines"},
        "couchbase__bucket": {"name": "kv"},
        "couchbase__scope": "cache",
        "couchbase__collection": "demo",
    }
    before = world.couchbase_mutations()
    async with world.operator():
        await world.create(**changes)
        await world.until_condition("Ready", "False", "SecretMissing")
        await world.write_secret("engines", username="engines", password="not-their-password")
        await world.until_condition("CredentialsReady", "False", "UserRefused")
        await world.write_secret("engines", username="engines", password="their-password")
        await world.until_condition("CredentialsReady", "True", seconds=40)
        await world.make_available()
        await world.until_condition("Ready", "True")
        await world.until_condition("CacheHealthy", "True")
        assert (await world.condition("BucketReady"))["status"] == "absent"
        assert await world.cluster.get("Secret", world.namespace, "demo-couchbase") is None
    assert world.couchbase_mutations() == before


@pytest.mark.parametrize("kind", ["caSecretRef", "caConfigMapRef"])
async def test_tls_is_verified_with_a_given_ca(world: World, tmp_path: Path, kind: str) -> None:
    with running_emulator(memory_quota_mib=1024, tls=True, tls_dir=tmp_path) as emulator:
        assert emulator.ca_path is not None
        assert emulator.tls_connection_string is not None
        world.couchbase = emulator
        await world.set_admin_secret()
        changes: dict[str, Any] = {
            "couchbase__connectionString": emulator.tls_connection_string,
            "couchbase__managementEndpoints": emulator.tls_management_urls,
        }
        async with world.operator():
            await world.create(**changes)
            await world.until_condition("CouchbaseReachable", "False", "CouchbaseTLSFailed")
            pem = emulator.ca_path.read_text()
            await world.write_secret("ca", **{"ca.crt": pem})
            await world.write_config_map("ca", {"ca.crt": pem})
            await world.edit(spec={"couchbase": {"tls": {kind: {"name": "ca", "key": "ca.crt"}}}})
            await world.until_condition("CredentialsReady", "True")
            await until(lambda: world.cluster.get("Deployment", world.namespace, "demo"))


async def test_a_missing_ca_is_waited_for_and_picked_up(world: World, tmp_path: Path) -> None:
    with running_emulator(memory_quota_mib=1024, tls=True, tls_dir=tmp_path) as emulator:
        assert emulator.ca_path is not None
        assert emulator.tls_connection_string is not None
        world.couchbase = emulator
        await world.set_admin_secret()
        async with world.operator():
            created = await world.create(
                couchbase__connectionString=emulator.tls_connection_string,
                couchbase__managementEndpoints=emulator.tls_management_urls,
                couchbase__tls={"caConfigMapRef": {"name": "later", "key": "ca.crt"}},
            )
            found = await world.until_condition("Ready", "False", "ConfigMapMissing")
            assert "spec.couchbase.tls.caConfigMapRef" in found["message"]
            await world.write_config_map("later", {"another.crt": "x"})

            async def is_key_named() -> bool:
                return "key ca.crt" in (await world.condition("Ready"))["message"]

            await until(is_key_named)
            await world.write_config_map("later", {"ca.crt": emulator.ca_path.read_text()})
            await world.until_condition("CredentialsReady", "True")
        live = await world.get("LMCacheCouchbase", "demo")
        assert live["metadata"]["generation"] == created["metadata"]["generation"]
