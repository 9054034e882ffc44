"""The cluster: nodes, buckets, users, settings, and who may do what."""

import asyncio
import copy
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from e2e.couchbase_emulator.counters import Counters
from e2e.couchbase_emulator.faults import Faults
from e2e.couchbase_emulator.kv.scram import Credential
from e2e.couchbase_emulator.model.bucket import Bucket, BucketSettings, make_bucket
from e2e.couchbase_emulator.model.clock import Clock
from e2e.couchbase_emulator.model.manifest import Manifest
from e2e.couchbase_emulator.model.roles import PermissionObject
from e2e.couchbase_emulator.model.users import NodeUsers, RoleGrant, User
from e2e.couchbase_emulator.options import EmulatorOptions

# The item pager is a task of its own in the server: it runs a moment after the write that woke it.
_PAGER_DELAY_SECONDS = 0.002
_ADMIN_GRANTS = (RoleGrant("admin"),)


# Name of the command, node or number of steps, seconds until a killed node lives again.
NodeCommand = Callable[[str, int, float | None], Awaitable[None]]


async def _no_sockets(command: str, value: int, revive_after_seconds: float | None) -> None:  # noqa: ARG001 - the signature of the real one
    raise ValueError(f"{command} needs a running emulator")


def _forget(outdated: dict[int, Manifest], node: int, manifest: Manifest) -> None:
    if outdated.get(node) is manifest:
        del outdated[node]


@dataclass
class AlternateAddress:
    """External address of a node, set through `setupAlternateAddresses`."""

    hostname: str
    ports: dict[str, int] = field(default_factory=dict)


@dataclass
class Node:
    """A node as the others see it; ports of TLS are None where there is no TLS."""

    index: int
    hostname: str
    mgmt_port: int = 0
    kv_port: int = 0
    mgmt_tls_port: int | None = None
    kv_tls_port: int | None = None
    alive: bool = True
    # Whether the node is part of the cluster; one that left keeps its place in the list of nodes.
    member: bool = True
    alternate: AlternateAddress | None = None
    users: NodeUsers = field(default_factory=NodeUsers)

    @property
    def otp_name(self) -> str:
        """Name inside the cluster, `ns_1@…`."""
        return f"ns_{self.index + 1}@{self.hostname}"


@dataclass
class PasswordPolicy:
    """Rules for new passwords."""

    min_length: int = 6
    uppercase: bool = False
    lowercase: bool = False
    digits: bool = False
    special: bool = False


@dataclass
class AutoFailover:
    """Settings of automatic failover."""

    enabled: bool = True
    timeout_seconds: int = 120
    max_count: int = 1
    count: int = 0
    allow_ephemeral_without_replicas: bool = False


@dataclass(frozen=True)
class Identity:
    """Who is asking."""

    name: str
    domain: str  # "admin", "local", or "anonymous" before a cluster is set up


class Cluster:
    """State of the emulated cluster; belongs to one event loop."""

    def __init__(self, options: EmulatorOptions) -> None:
        self.options = options
        self.clock = Clock()
        self.faults = Faults()
        self.counters = Counters()
        self.nodes = [Node(index, options.advertise) for index in range(options.nodes)]  # those that left included
        self.uuid = uuid.uuid4().hex
        self.name = ""
        self.initialised = False
        self.memory_quota_mib = options.memory_quota_mib
        self.admin_name = ""
        self.admin_credential = Credential("")
        self.buckets: dict[str, Bucket] = {}
        self.users: dict[str, User] = {}
        self.password_policy = PasswordPolicy()
        self.auto_failover = AutoFailover()
        self.revision = 1
        self.ca_pem: str | None = None
        # Carries out what needs sockets, such as `kill_node`; whoever owns the sockets sets it.
        self.node_command: NodeCommand = _no_sockets
        # Called with the bucket that goes away, to close the connections that have it open.
        self.on_bucket_removed: Callable[[Bucket], None] | None = None
        # Names and memory that deleted buckets hold until their end: name -> (MiB per node, Unix time).
        self._shutting_down: dict[str, tuple[int, float]] = {}

    def initialise(self, username: str, password: str, *, name: str = "", memory_quota_mib: int | None = None) -> None:
        """Make the first node a cluster."""
        self.initialised = True
        self.uuid = uuid.uuid4().hex
        self.name = name
        self.admin_name = username
        self.admin_credential = Credential(password)
        if memory_quota_mib is not None:
            self.memory_quota_mib = memory_quota_mib

    @property
    def members(self) -> list[Node]:
        """Nodes that are part of the cluster, dead ones included."""
        return [node for node in self.nodes if node.member]

    # -- who may do what ----------------------------------------------------------------------------------------

    def authenticate_rest(self, username: str, password: str) -> Identity | None:
        """Identity for REST credentials, or None."""
        if username == self.admin_name:
            return Identity(username, "admin") if self.admin_credential.matches(password) else None
        user = self.users.get(username)
        if user is None or user.locked or not user.credential.matches(password):
            return None
        return Identity(username, "local")

    def credential_on(self, node: Node, username: str) -> Credential | None:
        """Stored password of a user as a data node knows it."""
        if not self.initialised:
            return None
        if username == self.admin_name:
            return self.admin_credential
        user = node.users.get(username)
        return user.credential if user else None

    def grants_of(self, identity: Identity) -> tuple[RoleGrant, ...]:
        """Roles of whoever asks REST."""
        if identity.domain in ("admin", "anonymous"):
            return _ADMIN_GRANTS
        user = self.users.get(identity.name)
        return tuple(filter(self.is_current, user.grants)) if user else ()

    def grants_on(self, node: Node, username: str) -> tuple[RoleGrant, ...]:
        """Roles of a user as a data node knows them."""
        if username == self.admin_name:
            return _ADMIN_GRANTS
        user = node.users.get(username)
        return tuple(filter(self.is_current, user.grants)) if user else ()

    def is_current(self, grant: RoleGrant) -> bool:
        """Whether what a grant is pinned to still exists."""
        if grant.bucket_uuid is None:
            return True
        bucket = self.buckets.get(grant.target.bucket or "")
        if bucket is None or bucket.uuid != grant.bucket_uuid:
            return False
        if grant.scope_uid is None:
            return True
        scope = bucket.manifest.scopes.get(grant.target.scope or "")
        if scope is None or scope.uid != grant.scope_uid:
            return False
        if grant.collection_uid is None:
            return True
        collection = scope.collections.get(grant.target.collection or "")
        return collection is not None and collection.uid == grant.collection_uid

    def is_allowed(self, identity: Identity, wanted: PermissionObject, operation: str) -> bool:
        """Whether REST lets `identity` do this."""
        return any(grant.allows(wanted, operation) for grant in self.grants_of(identity))

    # -- users ---------------------------------------------------------------------------------------------------

    def put_user(self, user: User) -> None:
        """Create or replace a user; data nodes learn of it one after the other."""
        self.users[user.user_id] = user
        self._propagate(lambda node: node.users.put(user))

    def remove_user(self, user_id: str) -> None:
        """Delete a user; raises KeyError when there is none."""
        del self.users[user_id]
        self._propagate(lambda node: node.users.remove(user_id))

    def _propagate(self, tell: Callable[[Node], None]) -> None:
        delay_seconds = self.faults.user_propagation_delay_seconds
        for node in self.nodes:
            if delay_seconds > 0:
                asyncio.get_running_loop().call_later(delay_seconds * (node.index + 1), tell, node)
            else:
                tell(node)

    # -- buckets -------------------------------------------------------------------------------------------------

    def add_bucket(self, settings: BucketSettings) -> Bucket:
        """Create a bucket; it is usable after the warm-up of the faults."""
        bucket = make_bucket(
            settings,
            members=[node.index for node in self.members],
            node_count=len(self.nodes),
            clock=self.clock,
        )
        warmup_seconds = self.faults.bucket_warmup_seconds
        bucket.mapped_at_seconds = time.time() + warmup_seconds / 3
        bucket.ready_at_seconds = time.time() + warmup_seconds
        pending: set[int] = set()

        def relieve(node: int) -> None:
            pending.discard(node)
            bucket.documents.relieve(node)

        def wake_pager(node: int) -> None:
            if node not in pending:
                pending.add(node)
                asyncio.get_running_loop().call_later(_PAGER_DELAY_SECONDS, relieve, node)

        bucket.documents.on_pressure = wake_pager
        self.buckets[settings.name] = bucket
        self.revision += 1
        return bucket

    def will_change_manifest(self, bucket: Bucket) -> None:
        """Call before scopes or collections change: data nodes learn of it one after the other."""
        self.revision += 1
        delay_seconds = self.faults.manifest_propagation_delay_seconds
        if delay_seconds <= 0:
            return
        before = copy.deepcopy(bucket.manifest)
        for node in self.nodes:
            bucket.outdated_manifests[node.index] = before
            asyncio.get_running_loop().call_later(
                delay_seconds * (node.index + 1), _forget, bucket.outdated_manifests, node.index, before
            )

    def remove_bucket(self, name: str) -> None:
        """Delete a bucket and strip the roles pinned to it."""
        bucket = self.buckets.pop(name)
        hold_seconds = self.faults.bucket_delete_seconds
        if hold_seconds > 0:
            self._shutting_down[name] = (bucket.settings.ram_quota_mib, time.time() + hold_seconds)
        self.revision += 1
        for user in list(self.users.values()):
            kept = tuple(grant for grant in user.grants if grant.bucket_uuid != bucket.uuid)
            if kept != user.grants:
                self.put_user(replace(user, grants=kept))
        bucket.documents.clear()
        if self.on_bucket_removed is not None:
            self.on_bucket_removed(bucket)

    def is_shutting_down(self, name: str) -> bool:
        """Whether a deleted bucket of that name still holds it."""
        return name in self._ending()

    def is_mapped(self, bucket: Bucket) -> bool:
        """Whether nodes have vBuckets of a bucket; right after creation none has."""
        return time.time() >= bucket.mapped_at_seconds

    def is_ready(self, bucket: Bucket) -> bool:
        """Whether the warm-up of a bucket is over."""
        return time.time() >= bucket.ready_at_seconds

    def assigned_mib(self, *, without: str | None = None) -> int:
        """Memory per node promised to buckets, those shutting down included."""
        quotas = {name: bucket.settings.ram_quota_mib for name, bucket in self.buckets.items() if name != without}
        return sum(quotas.values()) + sum(mib for mib, _ in self._ending().values())

    def _ending(self) -> dict[str, tuple[int, float]]:
        now = time.time()
        self._shutting_down = {name: held for name, held in self._shutting_down.items() if held[1] > now}
        return self._shutting_down
