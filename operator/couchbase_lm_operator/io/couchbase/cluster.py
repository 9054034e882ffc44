"""One Couchbase cluster as one resource uses it: look, execute steps, probe."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from couchbase_lm_operator.core.couchbase import connection_string
from couchbase_lm_operator.core.couchbase.connection_string import Address, ConnectionString
from couchbase_lm_operator.core.couchbase_state import (
    CouchbaseGoal,
    CouchbaseState,
    CouchbaseTrouble,
    LoginProblem,
    LoginState,
    Trouble,
    UserAccess,
)
from couchbase_lm_operator.io.addresses import AddressGuard
from couchbase_lm_operator.io.couchbase import answers, reading, writing
from couchbase_lm_operator.io.couchbase.access import TlsTrust
from couchbase_lm_operator.io.couchbase.http import ManagementApi, TroubleError
from couchbase_lm_operator.io.kv_login import Keyspace, LoginProver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from couchbase_lm_operator.core.couchbase.provisioning_steps import Step
    from couchbase_lm_operator.core.couchbase.provisioning_trouble import StepFailure
    from couchbase_lm_operator.io.couchbase.access import Credentials


@dataclass(frozen=True)
class CouchbaseCluster:
    """The cluster behind ``goal``.

    ``admin`` is None in External mode; ``user`` is what the engines use: the generated credentials, or the
    given ones. Nothing stays open between calls, so an instance may be made for each pass.
    """

    goal: CouchbaseGoal
    admin: Credentials | None
    user: Credentials | None
    trust: TlsTrust = field(default_factory=TlsTrust)
    guard: AddressGuard = field(default_factory=AddressGuard)

    def asks_same(self, other: CouchbaseCluster) -> bool:
        """Say whether both ask the same cluster the same as the same users; the record is not part of the question."""
        return replace(self, goal=replace(self.goal, record=None)) == replace(
            other, goal=replace(other.goal, record=None)
        )

    async def read(self) -> CouchbaseState | CouchbaseTrouble | None:
        """Return what the cluster looks like, or why it cannot be seen; None without credentials."""
        try:
            connection = connection_string.parse(self.goal.connection_string)
        except connection_string.ConnectionStringError as error:
            return _bad_connection_string(error)
        if self.admin is None:
            return await self._read_external(connection)
        try:
            async with self._management(connection, self.admin) as api:
                state = await reading.read_state(api, self.goal, connection, self.user)
        except TroubleError as error:
            return error.trouble
        except answers.UnexpectedAnswerError as error:
            return CouchbaseTrouble(Trouble.UNEXPECTED, f"Couchbase's answer about {error.what} is incomplete.")
        return replace(state, login=await self._login(state, connection))

    async def execute(self, steps: Sequence[Step]) -> StepFailure | CouchbaseTrouble | None:
        """Execute ``steps`` in order; return what stopped them, or None when all are done."""
        if not steps:
            return None
        if self.admin is None:
            raise ValueError("steps need admin credentials")
        try:
            connection = connection_string.parse(self.goal.connection_string)
            async with self._management(connection, self.admin) as api:
                return await writing.execute(api, steps, self.user)
        except connection_string.ConnectionStringError as error:
            return _bad_connection_string(error)
        except TroubleError as error:
            return error.trouble

    async def probe(self) -> LoginState | None:
        """Log in as the engines' user on every data node; None while there are no credentials."""
        if self.user is None:
            return None
        try:
            connection = connection_string.parse(self.goal.connection_string)
        except connection_string.ConnectionStringError as error:
            return LoginState((), (), _bad_connection_string(error).detail)
        return await self._prover.discover_and_prove(connection, self.user, self._keyspace)

    async def _read_external(self, connection: ConnectionString) -> CouchbaseState | None:
        if self.user is None:
            return None
        login = await self._prover.discover_and_prove(connection, self.user, self._keyspace)
        return CouchbaseState(
            cluster_uuid="",
            is_enterprise=False,
            version="",
            nodes=(),
            ram_quota_total_per_node_bytes=0,
            ram_quota_used_per_node_bytes=0,
            auto_failover_enabled=False,
            allows_ephemeral_failover_without_replicas=False,
            bucket=None,
            user=None,
            login=login,
        )

    async def _login(self, state: CouchbaseState, connection: ConnectionString) -> LoginState | None:
        if self.user is None or state.bucket is None or state.user_access is not UserAccess.GRANTED:
            return None
        if not state.bucket.is_ready:
            return None
        closed = tuple(node.hostname for node in state.data_nodes if not node.kv_port)
        if closed:
            port = "data port with TLS" if connection.is_tls else "data port"
            return LoginState((), closed, f"Data node {closed[0]} offers no {port}.", LoginProblem.UNREACHABLE)
        nodes = [Address(node.kv_host, node.kv_port) for node in state.data_nodes]
        return await self._prover.prove(nodes, self.user, self._keyspace, is_tls=connection.is_tls)

    def _management(self, connection: ConnectionString, admin: Credentials) -> ManagementApi:
        urls = self.goal.management_urls or connection.management_urls
        return ManagementApi(urls, admin, self.trust, self.guard)

    @property
    def _prover(self) -> LoginProver:
        return LoginProver(self.trust, self.guard)

    @property
    def _keyspace(self) -> Keyspace:
        return Keyspace(self.goal.bucket.name, self.goal.scope, self.goal.collection)


def _bad_connection_string(error: connection_string.ConnectionStringError) -> CouchbaseTrouble:
    return CouchbaseTrouble(Trouble.BAD_CONNECTION_STRING, f"spec.couchbase.connectionString cannot be used: {error}.")
