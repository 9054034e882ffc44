"""What others remove or change of ours: put back, but a bucket or a user no third time."""

from __future__ import annotations

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.verdict import Refuse, Wait
from couchbase_lm_operator.io.couchbase.access import Credentials
from e2e.couchbase_emulator import Emulator
from tests.provisioning.administrator import admin_call
from tests.provisioning.arm import BUCKET, PASSWORD, USER, arm_for


async def test_a_removed_bucket_comes_back_once_and_no_third_time() -> None:
    async with Emulator() as emulator:
        arm = arm_for(emulator)
        await arm.until_done()
        await admin_call(emulator, "DELETE", f"/pools/default/buckets/{BUCKET}")
        await arm.until_done()  # the user lost its roles with the bucket, and has them again
        await admin_call(emulator, "DELETE", f"/pools/default/buckets/{BUCKET}")
        before = emulator.mutations
        for _ in range(2):
            verdict = await arm.one_pass()
            assert isinstance(verdict, Refuse)
            assert verdict.reason is Reason.REMOVED_BY_THIRD_PARTY
        assert emulator.mutations == before
        arm.generation += 1
        await arm.until_done()


async def test_a_removed_user_comes_back_once_and_no_third_time() -> None:
    async with Emulator() as emulator:
        arm = arm_for(emulator)
        await arm.until_done()
        await admin_call(emulator, "DELETE", f"/settings/rbac/users/local/{USER}")
        await arm.until_done()
        await admin_call(emulator, "DELETE", f"/settings/rbac/users/local/{USER}")
        for _ in range(2):
            verdict = await arm.one_pass()
            assert isinstance(verdict, Refuse)
            assert verdict.reason is Reason.REMOVED_BY_THIRD_PARTY
        arm.generation += 1
        await arm.until_done()


async def test_a_recreated_collection_gives_the_user_its_rights_again() -> None:
    async with Emulator() as emulator:
        arm = arm_for(emulator)
        await arm.until_done()
        for _ in range(3):  # clearing the cache this way is documented: never held against anybody
            await admin_call(emulator, "DELETE", f"/pools/default/buckets/{BUCKET}/scopes/team/collections/demo")
            await admin_call(emulator, "POST", f"/pools/default/buckets/{BUCKET}/scopes/team/collections", name="demo")
            assert isinstance(await arm.one_pass(), Wait)
            await arm.until_done()


async def test_a_dropped_collection_comes_back() -> None:
    async with Emulator() as emulator:
        arm = arm_for(emulator)
        await arm.until_done()
        await admin_call(emulator, "DELETE", f"/pools/default/buckets/{BUCKET}/scopes/team")
        await arm.until_done()


async def test_a_dropped_marker_comes_back_and_the_rest_stays() -> None:
    async with Emulator() as emulator:
        arm = arm_for(emulator)
        await arm.until_done()
        record = arm.record
        scopes = f"/pools/default/buckets/{BUCKET}/scopes"
        await admin_call(emulator, "DELETE", f"{scopes}/{arm.marker_scope}")
        del arm.actions[:]
        await arm.until_done()
        assert arm.actions == ["CreateScope"]
        assert arm.record == record
        assert arm.marker_scope in emulator.cluster.buckets[BUCKET].manifest.scopes


async def test_a_password_changed_by_others_is_set_back_to_the_secrets() -> None:
    async with Emulator() as emulator:
        arm = arm_for(emulator)
        await arm.until_done()
        arm.user = Credentials(USER, PASSWORD + "-new-secret")
        await arm.until_done()
        login = await arm.cluster.probe()
        assert login is not None
        assert login.is_proven


async def test_roles_added_by_others_are_taken_away() -> None:
    async with Emulator() as emulator:
        arm = arm_for(emulator)
        await arm.until_done()
        mark = (await admin_call(emulator, "GET", f"/settings/rbac/users/local/{USER}")).json()["name"]
        await admin_call(emulator, "PUT", f"/settings/rbac/users/local/{USER}", roles="admin", name=mark)
        await arm.until_done()
        user = (await admin_call(emulator, "GET", f"/settings/rbac/users/local/{USER}")).json()
        assert {role["role"] for role in user["roles"]} == {"data_reader", "data_writer"}
