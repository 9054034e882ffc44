"""Proof that a user can log in to the data nodes, open its bucket and see its collection. Reads only.

REST tells that a user exists before the data nodes know it, and each node learns it by itself: only a real
login on every node proves it. Passwords travel by SCRAM, or PLAIN inside TLS, never in clear.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import scramp

from couchbase_lm_operator.core.couchbase_state import LoginProblem, LoginState
from couchbase_lm_operator.io.addresses import ForbiddenAddressError, UnresolvedError
from couchbase_lm_operator.io.couchbase.node_services import MAX_NODES, nodes_from
from couchbase_lm_operator.io.kv_wire import Feature, KvConnection, Opcode, ProtocolError, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from couchbase_lm_operator.core.couchbase.connection_string import Address, ConnectionString
    from couchbase_lm_operator.io.addresses import AddressGuard
    from couchbase_lm_operator.io.couchbase.access import Credentials, TlsTrust

NODE_TIMEOUT_SECONDS = 6.0
SEED_HEAD_START_SECONDS = 1.0
MAX_SCRAM_ITERATIONS = 100_000
"""Several times what data nodes ask for; each login costs so many rounds of PBKDF2, which nothing can interrupt."""
_SCRAM = {"SCRAM-SHA512": "SCRAM-SHA-512", "SCRAM-SHA256": "SCRAM-SHA-256", "SCRAM-SHA1": "SCRAM-SHA-1"}


@dataclass(frozen=True)
class Keyspace:
    """The collection that a user must reach."""

    bucket: str
    scope: str
    collection: str


class _LoginError(Exception):
    def __init__(self, problem: LoginProblem, detail: str) -> None:
        super().__init__(detail)
        self.problem = problem


class LoginProver:
    """Logs a user in and out again; holds nothing open between calls."""

    def __init__(self, trust: TlsTrust, guard: AddressGuard) -> None:
        self._trust = trust
        self._guard = guard

    async def prove(
        self, nodes: Sequence[Address], user: Credentials, keyspace: Keyspace, *, is_tls: bool
    ) -> LoginState:
        """Return which of ``nodes`` let the user reach its collection; more than ``MAX_NODES`` are not asked."""
        if len(nodes) > MAX_NODES:
            told = (
                f"The cluster lists more than {MAX_NODES} nodes: check that spec.couchbase names a Couchbase cluster."
            )
            return LoginState((), (), told, LoginProblem.NOT_COUCHBASE)
        problems = await asyncio.gather(*(self._problem_on(node, user, keyspace, is_tls=is_tls) for node in nodes))
        failed = [(node, problem) for node, problem in zip(nodes, problems, strict=True) if problem is not None]
        proven = tuple(node.authority for node, problem in zip(nodes, problems, strict=True) if problem is None)
        first = failed[0][1] if failed else None
        return LoginState(
            proven_nodes=proven,
            missing_nodes=tuple(node.authority for node, _ in failed),
            detail=str(first) if first else "",
            problem=first.problem if first else None,
        )

    async def discover_and_prove(
        self, connection: ConnectionString, user: Credentials, keyspace: Keyspace
    ) -> LoginState:
        """Ask the seeds for the data nodes until one answers, then prove the login on each of them.

        A seed that is silent for ``SEED_HEAD_START_SECONDS`` lets the next one start; it may still answer first.
        """
        seeds = connection.kv_addresses
        refused: dict[int, _LoginError] = {}
        asked: dict[asyncio.Task[tuple[Address, ...]], int] = {}
        nodes: tuple[Address, ...] = ()
        try:
            while not nodes and len(refused) < len(seeds):
                started = len(asked) + len(refused)
                if started < len(seeds):
                    asking = self._nodes_behind(seeds[started], connection, user, keyspace)
                    asked[asyncio.create_task(asking)] = started
                head_start = SEED_HEAD_START_SECONDS if started + 1 < len(seeds) else None
                done, _ = await asyncio.wait(asked, timeout=head_start, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    place = asked.pop(task)
                    try:
                        nodes = nodes or task.result() or (seeds[place],)
                    except _LoginError as error:
                        refused[place] = error
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        if nodes:
            return await self.prove(nodes, user, keyspace, is_tls=connection.is_tls)
        if not refused:
            return LoginState((), (), "The connection string names no host.")
        place = min(refused)
        return LoginState((), (seeds[place].authority,), str(refused[place]), refused[place].problem)

    async def _nodes_behind(
        self, seed: Address, connection: ConnectionString, user: Credentials, keyspace: Keyspace
    ) -> tuple[Address, ...]:
        try:
            async with asyncio.timeout(NODE_TIMEOUT_SECONDS):
                kv = await self._open(seed, is_tls=connection.is_tls)
                try:
                    await _log_in(kv, seed, user, keyspace, is_tls=connection.is_tls)
                    reply = await kv.call(Opcode.GET_CLUSTER_CONFIG)
                finally:
                    await kv.close()
        except (OSError, EOFError, TimeoutError, ProtocolError) as error:
            raise _broken(seed, error) from error
        listed = nodes_from(_config(reply.value), seed.host, connection)
        return tuple(node.kv for node in listed if node.kv is not None)

    async def _problem_on(
        self, node: Address, user: Credentials, keyspace: Keyspace, *, is_tls: bool
    ) -> _LoginError | None:
        try:
            async with asyncio.timeout(NODE_TIMEOUT_SECONDS):
                kv = await self._open(node, is_tls=is_tls)
                try:
                    await _log_in(kv, node, user, keyspace, is_tls=is_tls)
                    await _see_collection(kv, node, user, keyspace)
                finally:
                    await kv.close()
        except _LoginError as error:
            return error
        except (OSError, EOFError, TimeoutError, ProtocolError) as error:
            return _broken(node, error)
        return None

    async def _open(self, node: Address, *, is_tls: bool) -> KvConnection:
        try:
            addresses = await self._guard.resolve(node)
            context = self._trust.context() if is_tls else None
        except ForbiddenAddressError as error:
            raise _LoginError(LoginProblem.FORBIDDEN_ADDRESS, str(error)) from error
        except UnresolvedError as error:
            raise _LoginError(LoginProblem.UNREACHABLE, str(error)) from error
        except ssl.SSLError as error:
            raise _LoginError(
                LoginProblem.TLS, "The CA of spec.couchbase.tls holds no PEM certificate: correct it."
            ) from error
        failure: OSError | None = None
        for address in addresses:
            try:
                reader, writer = await asyncio.open_connection(
                    address, node.port, ssl=context, server_hostname=node.host if context else None
                )
            except OSError as error:
                failure = error
                continue
            return KvConnection(reader, writer)
        raise _broken(node, failure or OSError()) from failure


async def _log_in(kv: KvConnection, node: Address, user: Credentials, keyspace: Keyspace, *, is_tls: bool) -> None:
    features = struct.pack(">4H", Feature.XERROR, Feature.SELECT_BUCKET, Feature.JSON, Feature.COLLECTIONS)
    await kv.call(Opcode.HELLO, b'{"a":"lmcache-couchbase-operator"}', features)
    offered = (await kv.call(Opcode.SASL_LIST)).value.decode("ascii", "replace").split()
    mechanism = next((name for name in _SCRAM if name in offered), None)
    if is_tls and "PLAIN" in offered:
        plain = b"\0" + user.username.encode() + b"\0" + user.password.encode()
        status = (await kv.call(Opcode.SASL_AUTH, b"PLAIN", plain)).status
    elif mechanism is not None:
        status = await _scram(kv, node, mechanism, user)
    else:
        raise _LoginError(
            LoginProblem.LOGIN_REFUSED,
            f"{node.authority} offers no SCRAM login: use couchbases:// or allow SCRAM there.",
        )
    if status != Status.SUCCESS:
        raise _LoginError(
            LoginProblem.LOGIN_REFUSED, f"{node.authority} refuses the name or password of user {user.username!r}."
        )
    reply = await kv.call(Opcode.SELECT_BUCKET, keyspace.bucket.encode())
    if reply.status != Status.SUCCESS:
        raise _LoginError(
            LoginProblem.BUCKET_REFUSED,
            f"{node.authority} does not let user {user.username!r} open bucket {keyspace.bucket!r}: the bucket is "
            "missing there, or the user has no right on it.",
        )


async def _scram(kv: KvConnection, node: Address, mechanism: str, user: Credentials) -> int:
    client = scramp.ScramClient([_SCRAM[mechanism]], user.username, user.password)
    first = await kv.call(Opcode.SASL_AUTH, mechanism.encode(), client.get_client_first().encode())
    if first.status != Status.AUTH_CONTINUE:
        return first.status
    try:
        client.set_server_first(first.value.decode())
        if client.iterations.value > MAX_SCRAM_ITERATIONS:
            raise _LoginError(
                LoginProblem.NOT_COUCHBASE,
                f"{node.authority} asks for more than {MAX_SCRAM_ITERATIONS} SCRAM iterations, which no data node does "
                "by itself: lower them there, or use couchbases://.",
            )
        # In a thread, where it holds up nobody: the rounds are done without Python's lock.
        proof = await asyncio.to_thread(client.get_client_final)
        final = await kv.call(Opcode.SASL_STEP, mechanism.encode(), proof.encode())
        if final.status == Status.SUCCESS:
            # The server proves that it knows the password too.
            client.set_server_final(final.value.decode())
    except (scramp.ScramException, UnicodeDecodeError) as error:
        raise ProtocolError("the peer does not follow SCRAM") from error
    return final.status


async def _see_collection(kv: KvConnection, node: Address, user: Credentials, keyspace: Keyspace) -> None:
    path = f"{keyspace.scope}.{keyspace.collection}"
    reply = await kv.call(Opcode.GET_COLLECTION_ID, value=path.encode())
    if reply.status != Status.SUCCESS:
        raise _LoginError(
            LoginProblem.COLLECTION_REFUSED,
            f"{node.authority} does not show user {user.username!r} the collection {keyspace.bucket}.{path}: it is "
            "missing there, or the user has no right on it.",
        )
    await kv.call(Opcode.NOOP)


def _broken(node: Address, error: BaseException) -> _LoginError:
    if isinstance(error, ssl.SSLError):
        return _LoginError(
            LoginProblem.TLS,
            f"The certificate of {node.authority} cannot be verified: put the cluster's CA into spec.couchbase.tls and "
            "use a name that the certificate carries.",
        )
    if isinstance(error, ProtocolError):
        return _LoginError(LoginProblem.NOT_COUCHBASE, f"{node.authority} does not speak Couchbase's data protocol.")
    return _LoginError(LoginProblem.UNREACHABLE, f"Data node {node.authority} does not answer.")


def _config(value: bytes) -> dict[str, Any]:
    try:
        config = json.loads(value)
    except ValueError:
        return {}
    return config if isinstance(config, dict) else {}
