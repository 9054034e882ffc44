"""A bucket that exists already: shared, or not ours at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.couchbase import ownership
from couchbase_lm_operator.core.verdict import Proceed, Refuse, Wait
from couchbase_lm_operator.io.couchbase.access import Credentials, TlsTrust
from e2e.couchbase_emulator import Emulator
from tests.provisioning.arm import BUCKET, MEBIBYTE, PASSWORD, Arm, arm_for, bucket_goal, couchbase_goal

ROLES = f"data_reader[{BUCKET}:team:demo],data_writer[{BUCKET}:team:demo]"


def external_arm(emulator: Emulator, user: str = "given", password: str = PASSWORD) -> Arm:
    goal = couchbase_goal(emulator.connection_string, (), provisioning="External")
    return Arm(goal, None, Credentials(user, password))


async def test_a_shared_bucket_gets_scope_collection_and_user_and_keeps_its_settings() -> None:
    async with Emulator() as emulator:
        emulator.create_bucket(BUCKET, quota_mib=300)
        settings = emulator.cluster.buckets[BUCKET].settings
        wish = bucket_goal(management="Shared", memory_quota_bytes=999 * MEBIBYTE, replicas=None)
        arm = arm_for(emulator, bucket=wish)
        await arm.until_done()
        assert emulator.documents(BUCKET, "team", "demo") == {}
        assert emulator.cluster.buckets[BUCKET].settings == settings
        assert arm.record is not None
        assert not arm.record.created
        assert not any(map(ownership.is_marker_scope, emulator.cluster.buckets[BUCKET].manifest.scopes))
        before = emulator.mutations
        assert await arm.one_pass() == Proceed()
        assert emulator.mutations == before


async def test_a_missing_shared_bucket_is_refused_and_picked_up_when_it_comes() -> None:
    async with Emulator() as emulator:
        arm = arm_for(emulator, bucket=bucket_goal(management="Shared"))
        verdict = await arm.one_pass()
        assert isinstance(verdict, Refuse)
        assert verdict.reason is Reason.SHARED_BUCKET_MISSING
        emulator.create_bucket(BUCKET)
        await arm.until_done()


async def test_two_resources_share_a_bucket() -> None:
    async with Emulator() as emulator:
        emulator.create_bucket(BUCKET)
        first = arm_for(emulator, bucket=bucket_goal(management="Shared"))
        second = arm_for(emulator, bucket=bucket_goal(management="Shared"), user="other", collection="other")
        second.goal = replace(second.goal, ownership_mark=ownership.mark("0123abcd", "team", "other"))
        await first.until_done()
        await second.until_done()
        before = emulator.mutations
        assert await first.one_pass() == Proceed()
        assert emulator.mutations == before


@pytest.mark.parametrize("nodes", [1, 3])
async def test_external_only_checks(nodes: int) -> None:
    async with Emulator(nodes=nodes) as emulator:
        emulator.create_bucket(BUCKET)
        emulator.create_collection(BUCKET, "team", "demo")
        emulator.create_user("given", PASSWORD, ROLES)
        before = emulator.mutations
        arm = external_arm(emulator)
        assert await arm.one_pass() == Proceed()
        login = await arm.cluster.probe()
        assert login is not None
        assert len(login.proven_nodes) == nodes
        assert emulator.mutations == before
        arm.is_deleting = True
        assert await arm.one_pass() == Proceed()
        assert emulator.mutations == before


async def test_external_trouble_is_told_apart_and_heals() -> None:
    async with Emulator() as emulator:
        arm = external_arm(emulator)

        async def reason() -> Reason:
            verdict = await arm.one_pass()
            assert isinstance(verdict, Wait)
            return verdict.reason

        assert await reason() is Reason.USER_REFUSED
        emulator.create_bucket(BUCKET)
        emulator.create_user("given", PASSWORD, "data_reader[*]")
        emulator.create_user("blind", PASSWORD, "ro_admin")
        assert await reason() is Reason.COLLECTION_ACCESS_REFUSED
        arm.user = Credentials("given", "wrong")
        assert await reason() is Reason.USER_REFUSED
        arm.user = Credentials("given", PASSWORD)
        arm.goal = replace(arm.goal, bucket=bucket_goal(name="absent"))
        assert await reason() is Reason.BUCKET_ACCESS_REFUSED
        arm.goal = replace(arm.goal, bucket=bucket_goal())
        emulator.create_collection(BUCKET, "team", "demo")
        assert await arm.one_pass() == Proceed()


async def test_a_dead_data_node_shows_in_the_probe() -> None:
    async with Emulator(nodes=3) as emulator:
        arm = arm_for(emulator)
        await arm.until_done()
        emulator.kill_node(0)
        login = await arm.cluster.probe()
        assert login is not None
        assert len(login.proven_nodes) == 2
        assert "does not answer" in login.detail
        await emulator.revive_node(0)
        login = await arm.cluster.probe()
        assert login is not None
        assert login.is_proven


async def test_tls_verifies_the_certificate_for_rest_and_data() -> None:
    async with Emulator(tls=True, nodes=2) as emulator:
        assert emulator.ca_path is not None
        arm = arm_for(
            emulator,
            connection_string=emulator.tls_connection_string,
            management_urls=tuple(emulator.tls_management_urls),
        )
        verdict = await arm.one_pass()
        assert isinstance(verdict, Refuse)
        assert verdict.reason is Reason.COUCHBASE_TLS_FAILED
        assert "spec.couchbase.tls" in verdict.message

        arm.trust = TlsTrust(ca_pem="no certificate")
        verdict = await arm.one_pass()
        assert isinstance(verdict, Refuse)
        assert verdict.reason is Reason.COUCHBASE_TLS_FAILED

        arm.trust = TlsTrust(ca_pem=emulator.ca_path.read_text())
        await arm.until_done()
        login = await arm.cluster.probe()
        assert login is not None
        assert login.is_proven

        arm.trust = TlsTrust()
        login = await arm.cluster.probe()
        assert login is not None
        assert not login.is_proven
        arm.trust = TlsTrust(skip_verify=True)
        assert await arm.one_pass() == Proceed()
