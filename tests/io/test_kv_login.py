"""Logging in to data nodes that behave, and to peers that do not."""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from couchbase_lm_operator.core.couchbase import connection_string
from couchbase_lm_operator.core.couchbase.connection_string import Address
from couchbase_lm_operator.core.couchbase_state import LoginProblem
from couchbase_lm_operator.io import kv_login
from couchbase_lm_operator.io.addresses import AddressGuard
from couchbase_lm_operator.io.couchbase.access import Credentials, TlsTrust
from couchbase_lm_operator.io.couchbase.node_services import nodes_from
from couchbase_lm_operator.io.kv_login import Keyspace, LoginProver
from e2e.couchbase_emulator import Emulator
from e2e.couchbase_emulator.tls import ensure_tls_files

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

USER = Credentials("user", "a-secret-word")
KEYSPACE = Keyspace("b", "s", "c")
PROVER = LoginProver(TlsTrust(), AddressGuard())


@asynccontextmanager
async def peer(*answers: bytes, stays_open: bool = False) -> AsyncIterator[Address]:
    """A server that answers each request frame with the next of ``answers``; sees what it was sent."""
    closed = asyncio.Event()
    received: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            header = await reader.readexactly(24)
            body = await reader.readexactly(struct.unpack_from(">I", header, 8)[0])
            received.append(body)
            writer.write(answer.replace(b"OPAQ", header[12:16]))
            await writer.drain()
        if stays_open:
            await closed.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield Address("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        closed.set()
        server.close()
    assert USER.password.encode() not in b"".join(received)  # never in clear on a plain connection


def frame(opcode: int, status: int, value: bytes = b"", magic: int = 0x81, length: int | None = None) -> bytes:
    header = struct.pack(
        ">BBHBBHI4sQ", magic, opcode, 0, 0, 0, status, len(value) if length is None else length, b"OPAQ", 0
    )
    return header + value


HELLO = frame(0x1F, 0)
ALL = b"SCRAM-SHA512 SCRAM-SHA256 SCRAM-SHA1 PLAIN"


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ((), LoginProblem.UNREACHABLE),  # closes at once
        ((b"HTTP/1.1 400 Bad Request\r\n\r\n",), LoginProblem.NOT_COUCHBASE),
        ((frame(0x1F, 0, length=1 << 30),), LoginProblem.NOT_COUCHBASE),
        ((HELLO, frame(0x20, 0, b"PLAIN")), LoginProblem.LOGIN_REFUSED),  # not in clear without TLS
        ((HELLO, frame(0x20, 0, b"\xff\xfe")), LoginProblem.LOGIN_REFUSED),
        ((HELLO, frame(0x20, 0, ALL), frame(0x21, 0x20)), LoginProblem.LOGIN_REFUSED),
        ((HELLO, frame(0x20, 0, ALL), frame(0x21, 0x21, b"no scram")), LoginProblem.NOT_COUCHBASE),
        ((HELLO, frame(0x20, 0, ALL), frame(0x21, 0x21, b"r=x,s=AAAA,i=4096")), LoginProblem.NOT_COUCHBASE),
    ],
)
async def test_peers_that_do_not_behave(answers: tuple[bytes, ...], problem: LoginProblem) -> None:
    async with peer(*answers) as node:
        login = await PROVER.prove([node], USER, KEYSPACE, is_tls=False)
    assert login.problem is problem
    assert login.missing_nodes == (node.authority,)
    assert USER.password not in repr(login)


async def test_a_peer_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_login, "NODE_TIMEOUT_SECONDS", 0.2)
    async with peer(stays_open=True) as node:
        assert (await PROVER.prove([node], USER, KEYSPACE, is_tls=False)).problem is LoginProblem.UNREACHABLE
        seeds = connection_string.parse(f"couchbase://{node.authority}")
        assert (await PROVER.discover_and_prove(seeds, USER, KEYSPACE)).problem is LoginProblem.UNREACHABLE


async def test_a_dead_seed_is_passed_over() -> None:
    async with peer() as dead:
        pass
    async with Emulator(nodes=2) as emulator:
        emulator.create_bucket("b")
        emulator.create_collection("b", "s", "c")
        emulator.create_user(USER.username, USER.password, "data_reader[b:s:c]")
        seeds = connection_string.parse(
            f"couchbase://{dead.authority},{emulator.connection_string.removeprefix('couchbase://')}"
        )
        login = await PROVER.discover_and_prove(seeds, USER, KEYSPACE)
        assert len(login.proven_nodes) == 2
        assert login.is_proven


async def test_silent_seeds_hold_nobody_up_for_long() -> None:
    async with peer(stays_open=True) as first, peer(stays_open=True) as second, Emulator(nodes=2) as emulator:
        emulator.create_bucket("b")
        emulator.create_collection("b", "s", "c")
        emulator.create_user(USER.username, USER.password, "data_reader[b:s:c]")
        lively = emulator.connection_string.removeprefix("couchbase://")
        seeds = connection_string.parse(f"couchbase://{first.authority},{second.authority},{lively}")
        async with asyncio.timeout(kv_login.NODE_TIMEOUT_SECONDS):
            assert (await PROVER.discover_and_prove(seeds, USER, KEYSPACE)).is_proven


async def test_the_first_seed_tells_why_none_lets_in() -> None:
    refusing = (HELLO, frame(0x20, 0, ALL), frame(0x21, 0x20))
    async with peer(*refusing) as first, peer() as second:
        seeds = connection_string.parse(f"couchbase://{first.authority},{second.authority}")
        login = await PROVER.discover_and_prove(seeds, USER, KEYSPACE)
    assert login.problem is LoginProblem.LOGIN_REFUSED
    assert login.missing_nodes == (first.authority,)


async def test_no_data_node_is_no_proof() -> None:
    assert not (await PROVER.prove([], USER, KEYSPACE, is_tls=False)).is_proven


NODES = {
    "nodesExt": [
        {"services": {"mgmt": 8091, "kv": 11210, "kvSSL": 11207}, "thisNode": True},
        {"services": {"mgmt": 8091, "n1ql": 8093}, "hostname": "query"},
        {
            "services": {"mgmt": 8091, "kv": 11210, "kvSSL": 11207},
            "hostname": "data",
            "alternateAddresses": {"external": {"hostname": "outside", "ports": {"kv": 31210, "kvSSL": 31207}}},
        },
        "nonsense",
    ]
}


@pytest.mark.parametrize(
    ("asked", "network", "is_tls", "expected"),
    [
        ("seed", "default", False, ["seed:11210", "data:11210"]),
        ("seed", "default", True, ["seed:11207", "data:11207"]),
        ("seed", "external", False, ["seed:11210", "outside:31210"]),
        ("outside", "auto", True, ["outside:11207", "outside:31207"]),
        ("data", "auto", False, ["data:11210", "data:11210"]),
        ("elsewhere", "auto", False, ["elsewhere:11210", "data:11210"]),
    ],
)
def test_addresses_of_data_nodes(asked: str, network: str, expected: list[str], *, is_tls: bool) -> None:
    scheme = "couchbases" if is_tls else "couchbase"
    connection = connection_string.parse(f"{scheme}://{asked}?network={network}")
    nodes = nodes_from(NODES, asked, connection)
    assert [node.kv.authority for node in nodes if node.kv] == expected


@pytest.mark.parametrize("config", [{}, {"nodesExt": None}, {"nodesExt": [{"services": {"kv": "x"}}]}])
def test_a_configuration_without_nodes(config: dict[str, object]) -> None:
    assert [
        node.kv for node in nodes_from(config, "seed", connection_string.parse("couchbase://seed")) if node.kv
    ] == []


async def test_a_peer_that_falls_silent_inside_tls_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kv_login, "NODE_TIMEOUT_SECONDS", 0.5)
    is_over = asyncio.Event()

    async def stall(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # not even the farewell of TLS is seen
        await is_over.wait()
        writer.transport.abort()

    tls = ensure_tls_files(tmp_path, ("localhost",)).server_context()
    server = await asyncio.start_server(stall, "127.0.0.1", 0, ssl=tls)
    async with server:
        node = Address("127.0.0.1", server.sockets[0].getsockname()[1])
        prover = LoginProver(TlsTrust(skip_verify=True), AddressGuard())
        async with asyncio.timeout(5):
            found = await prover.prove([node], USER, KEYSPACE, is_tls=True)
        is_over.set()
    assert found.problem is LoginProblem.UNREACHABLE


@pytest.mark.parametrize("count", ["2000000", "99999999999999", "0", "-1", "9" * 5000, "abc", ""])
async def test_a_peer_that_asks_for_endless_work_is_refused_before_it_is_done(count: str) -> None:
    """PBKDF2 cannot be interrupted: the server's number of rounds must not hold up everybody else."""
    loop = asyncio.get_running_loop()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in (HELLO, frame(0x20, 0, ALL), b""):
            header = await reader.readexactly(24)
            body = await reader.readexactly(struct.unpack_from(">I", header, 8)[0])
            nonce = body.rpartition(b"r=")[2].decode() + "more"
            first = frame(0x21, 0x21, f"r={nonce},s=QUFBQUFBQUFBQUFBQUFBQUFBQUE=,i={count}".encode())
            writer.write((answer or first).replace(b"OPAQ", header[12:16]))
            await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    node = Address("127.0.0.1", server.sockets[0].getsockname()[1])
    started, gaps = loop.time(), [0.0]

    async def watch() -> None:
        while True:
            before = loop.time()
            await asyncio.sleep(0.01)
            gaps.append(loop.time() - before)

    watching = asyncio.create_task(watch())
    try:
        login = await PROVER.prove([node], USER, KEYSPACE, is_tls=False)
    finally:
        watching.cancel()
        server.close()
    assert login.problem is LoginProblem.NOT_COUCHBASE
    assert loop.time() - started < kv_login.NODE_TIMEOUT_SECONDS / 2
    assert max(gaps) < 0.5


async def test_a_cluster_that_lists_more_nodes_than_there_can_be_is_not_asked() -> None:
    async with peer() as node:
        login = await PROVER.prove([node] * (kv_login.MAX_NODES + 1), USER, KEYSPACE, is_tls=False)
    assert login.problem is LoginProblem.NOT_COUCHBASE
    assert not login.is_proven
    assert str(kv_login.MAX_NODES) in login.detail
