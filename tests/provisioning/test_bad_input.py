"""Endpoints, credentials and specs that cannot work: one reason, one sentence that helps, nothing half-made."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.couchbase.connection_string import Address
from couchbase_lm_operator.core.verdict import Refuse, Wait
from couchbase_lm_operator.io.addresses import AddressGuard, guard_for
from couchbase_lm_operator.io.couchbase import http as couchbase_http
from couchbase_lm_operator.io.couchbase.access import Credentials
from e2e.couchbase_emulator import Emulator
from tests.provisioning.administrator import admin_call
from tests.provisioning.arm import BUCKET, PASSWORD, USER, Arm, arm_for, bucket_goal, couchbase_goal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ADMIN = Credentials("Administrator", "a-secret-admin-word")
LEAK = "body-of-a-foreign-server"


def arm_at(*urls: str, connection_string: str = "couchbase://localhost") -> Arm:
    return Arm(couchbase_goal(connection_string, urls), ADMIN, Credentials(USER, PASSWORD))


@asynccontextmanager
async def server(answer: bytes) -> AsyncIterator[str]:
    """A server that answers everything with the same bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    running = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with running:
        yield f"http://127.0.0.1:{running.sockets[0].getsockname()[1]}"


def http(status: str, body: str = "", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers, "", body]
    return "\r\n".join(lines).encode()


async def reason_of(arm: Arm) -> Reason:
    verdict = await arm.one_pass()
    assert isinstance(verdict, Refuse | Wait)
    assert verdict.message.endswith(".")
    assert LEAK not in verdict.message
    assert ADMIN.password not in verdict.message
    assert PASSWORD not in verdict.message
    return verdict.reason


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (http("200 OK", LEAK), Reason.NOT_COUCHBASE),
        (http("200 OK", json.dumps({"pools": LEAK})), Reason.NOT_COUCHBASE),
        (http("404 Not Found", LEAK), Reason.NOT_COUCHBASE),
        (http("302 Found", LEAK, "Location: http://169.254.169.254/latest"), Reason.ENDPOINT_REDIRECTS),
        (http("307 Temporary Redirect", LEAK, "Location: /elsewhere"), Reason.ENDPOINT_REDIRECTS),
        (http("401 Unauthorized"), Reason.ADMIN_CREDENTIALS_REFUSED),
        (http("403 Forbidden", LEAK), Reason.ADMIN_NOT_PERMITTED),
        (http("503 Service Unavailable", LEAK), Reason.COUCHBASE_BUSY),
        (http("500 Internal Server Error", LEAK), Reason.COUCHBASE_ANSWER_UNEXPECTED),
        (b"SSH-2.0-" + LEAK.encode() + b"\r\n\r\n", Reason.NOT_COUCHBASE),
        (b"", Reason.COUCHBASE_UNREACHABLE),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n" + b"x" * 9_000_000, Reason.NOT_COUCHBASE),
    ],
)
async def test_what_answers_is_no_usable_couchbase(answer: bytes, reason: Reason) -> None:
    async with server(answer) as url:
        assert await reason_of(arm_at(url)) is reason


async def test_an_answer_that_lacks_what_couchbase_always_sends_is_told_without_its_content() -> None:
    body = json.dumps({"pools": [{"name": LEAK}], "uuid": "u", "implementationVersion": LEAK, "isEnterprise": True})
    async with server(http("200 OK", body)) as url:
        assert await reason_of(arm_at(url)) is Reason.COUCHBASE_ANSWER_UNEXPECTED


async def test_nothing_listens() -> None:
    async with server(b"") as url:
        pass
    assert await reason_of(arm_at(url)) is Reason.COUCHBASE_UNREACHABLE


async def test_an_unknown_host() -> None:
    assert await reason_of(arm_at(connection_string="couchbase://no-such-host.invalid")) is Reason.COUCHBASE_UNREACHABLE


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "0.0.0.0", "[fd00:ec2::254]", "224.0.0.1"]
)
async def test_link_local_and_special_addresses_are_not_connected_to(host: str) -> None:
    assert await reason_of(arm_at(f"http://{host}:8091")) is Reason.ENDPOINT_FORBIDDEN
    external = arm_at(connection_string=f"couchbase://{host}")
    external.admin, external.goal = None, replace(external.goal, provisioning="External")
    assert await reason_of(external) is Reason.ENDPOINT_FORBIDDEN


async def test_the_api_server_is_not_connected_to() -> None:
    async with server(http("200 OK")) as url:
        port = int(url.rpartition(":")[2])
        guard = await guard_for([Address("localhost", port), Address("no-such-host.invalid", 443)])
        assert (ipaddress.ip_address("127.0.0.1"), port) in guard.api_servers
        arm = arm_at(url)
        arm.guard = guard
        assert await reason_of(arm) is Reason.ENDPOINT_FORBIDDEN


async def test_a_cluster_that_names_a_forbidden_data_node_is_not_followed_there() -> None:
    async with Emulator(advertise="127.0.0.1") as emulator:
        arm = arm_for(emulator)
        await arm.until_done()
        kv_port = int(emulator.connection_string.rpartition(":")[2])
        arm.guard = AddressGuard(frozenset({(ipaddress.ip_address("127.0.0.1"), kv_port)}))
        assert await reason_of(arm) is Reason.ENDPOINT_FORBIDDEN


@pytest.mark.parametrize(
    "text",
    ["http://host", "couchbase://", "couchbase://user:pw@host", "couchbase://host/bucket", "couchbase://h:99999",
     "couchbase://h?network=nowhere"],
)  # fmt: skip
async def test_a_connection_string_that_cannot_be_used(text: str) -> None:
    assert await reason_of(arm_at(connection_string=text)) is Reason.INVALID_SPEC


async def test_a_wrong_admin_password_heals_with_the_secret() -> None:
    async with Emulator() as emulator:
        arm = arm_for(emulator)
        right, arm.admin = arm.admin, ADMIN
        before = emulator.mutations
        assert await reason_of(arm) is Reason.ADMIN_CREDENTIALS_REFUSED
        assert emulator.mutations == before
        arm.admin = right
        await arm.until_done()


async def test_a_missing_admin_secret_is_waited_for() -> None:
    async with Emulator() as emulator:
        arm = arm_for(emulator)
        right, arm.admin, arm.user = arm.admin, None, None
        assert await reason_of(arm) is Reason.SECRET_MISSING
        arm.admin, arm.user = right, Credentials(USER, PASSWORD)
        await arm.until_done()


async def test_an_admin_without_the_roles() -> None:
    async with Emulator() as emulator:
        emulator.create_user("half", "half-an-admin", "ro_admin")
        arm = arm_for(emulator)
        arm.admin = Credentials("half", "half-an-admin")
        assert await reason_of(arm) is Reason.ADMIN_NOT_PERMITTED


async def test_a_node_that_is_not_initialised() -> None:
    async with Emulator(uninitialised=True) as emulator:
        arm = arm_for(emulator)
        assert await reason_of(arm) is Reason.COUCHBASE_NOT_INITIALISED
        emulator.cluster.initialise(emulator.admin_username, emulator.admin_password, name="late")
        await arm.until_done()


async def test_community_edition() -> None:
    async with Emulator(edition="community") as emulator:
        before = emulator.mutations
        arm = arm_for(emulator)
        assert await reason_of(arm) is Reason.COMMUNITY_EDITION
        assert emulator.mutations == before


async def test_the_next_endpoint_is_asked_when_one_is_dead() -> None:
    async with server(b"") as dead, Emulator() as emulator:
        pass
    async with Emulator() as emulator:
        arm = arm_for(emulator)
        arm.goal = replace(
            arm.goal, management_urls=(dead, "http://no-such-host.invalid:8091", *arm.goal.management_urls)
        )
        await arm.until_done()


async def test_the_next_endpoint_is_asked_when_one_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(couchbase_http, "READ_TIMEOUT_SECONDS", 0.3)
    is_over = asyncio.Event()

    async def hang(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await is_over.wait()
        writer.close()

    hanging = await asyncio.start_server(hang, "127.0.0.1", 0)
    async with hanging, Emulator() as emulator:
        arm = arm_for(emulator)
        url = f"http://127.0.0.1:{hanging.sockets[0].getsockname()[1]}"
        arm.goal = replace(arm.goal, management_urls=(url, *arm.goal.management_urls))
        await arm.until_done()
        arm.goal = replace(arm.goal, management_urls=(url,))
        assert await reason_of(arm) is Reason.COUCHBASE_UNREACHABLE
        is_over.set()


async def test_the_next_endpoint_is_asked_when_one_sends_byte_by_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(couchbase_http, "READ_TIMEOUT_SECONDS", 0.3)

    async def dribble(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        with suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.02)

    dribbling = await asyncio.start_server(dribble, "127.0.0.1", 0)
    async with dribbling, Emulator() as emulator:
        arm = arm_for(emulator)
        url = f"http://127.0.0.1:{dribbling.sockets[0].getsockname()[1]}"
        arm.goal = replace(arm.goal, management_urls=(url, *arm.goal.management_urls))
        await arm.until_done()
        arm.goal = replace(arm.goal, management_urls=(url,))
        async with asyncio.timeout(5):
            assert await reason_of(arm) is Reason.COUCHBASE_UNREACHABLE


@pytest.mark.parametrize("name", [".hidden", "with space", "x" * 101])
async def test_an_illegal_bucket_name(name: str) -> None:
    async with Emulator() as emulator:
        arm = arm_for(emulator, bucket=bucket_goal(name=name))
        assert await reason_of(arm) is Reason.BUCKET_NAME_REFUSED


@pytest.mark.parametrize(("scope", "collection"), [("_hidden", "c"), ("s", "with space")])
async def test_an_illegal_scope_or_collection(scope: str, collection: str) -> None:
    async with Emulator() as emulator:
        arm = arm_for(emulator, scope=scope, collection=collection)
        verdict = await arm.until(Refuse)
        assert isinstance(verdict, Refuse)
        assert verdict.reason is Reason.KEYSPACE_REFUSED
        arm.goal = replace(arm.goal, scope="team", collection="demo")
        await arm.until_done()
        assert arm.actions.count("CreateBucket") == 1


async def test_an_illegal_user_name() -> None:
    async with Emulator() as emulator:
        arm = arm_for(emulator, user="a@b,c")
        verdict = await arm.until(Refuse)
        assert isinstance(verdict, Refuse)
        assert verdict.reason is Reason.USER_NAME_REFUSED


async def test_a_password_policy_that_is_not_met() -> None:
    async with Emulator() as emulator:
        arm = arm_for(emulator)
        arm.user = Credentials(USER, "x")
        verdict = await arm.until(Refuse)
        assert isinstance(verdict, Refuse)
        assert verdict.reason is Reason.PASSWORD_POLICY_REFUSED
        assert "demo-couchbase" in verdict.message
        arm.user = Credentials(USER, PASSWORD)
        await arm.until_done()


async def test_too_many_buckets() -> None:
    async with Emulator(memory_quota_mib=8192) as emulator:
        for number in range(30):
            emulator.create_bucket(f"b{number}", quota_mib=100)
        arm = arm_for(emulator)
        assert await reason_of(arm) is Reason.TOO_MANY_BUCKETS
        # room is made, and somebody else is faster with a bucket of that name
        await admin_call(emulator, "DELETE", "/pools/default/buckets/b0")
        emulator.create_bucket(BUCKET, quota_mib=100)
        assert await reason_of(arm) is Reason.BUCKET_NOT_OURS


async def test_no_secret_in_repr_or_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with Emulator() as emulator:
        arm = arm_for(emulator)
        await arm.until_done()
        everything = repr(arm) + repr(arm.cluster) + repr(await arm.cluster.read()) + caplog.text
        assert PASSWORD not in everything
        assert repr(arm.admin) == f"Credentials(username={emulator.admin_username!r})"
        assert BUCKET in everything
