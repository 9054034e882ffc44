"""What was seen of a Couchbase cluster, and what a resource wants of it: the seam of provisioning.

``io.couchbase.reading`` and ``io.kv_login`` fill the observed side, ``core.plan`` the goal, and
``core.couchbase.provisioning`` compares the two. Sizes are bytes, durations seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Trouble(StrEnum):
    """Why a Couchbase endpoint could not be used, as far as the reader could tell."""

    BAD_CONNECTION_STRING = "BadConnectionString"
    UNREACHABLE = "Unreachable"
    NOT_COUCHBASE = "NotCouchbase"
    NOT_INITIALISED = "NotInitialised"
    REDIRECTED = "Redirected"
    FORBIDDEN_ADDRESS = "ForbiddenAddress"
    BAD_CREDENTIALS = "BadCredentials"
    NOT_PERMITTED = "NotPermitted"
    TLS = "TLS"
    BUSY = "Busy"
    UNEXPECTED = "Unexpected"


@dataclass(frozen=True)
class CouchbaseTrouble:
    """A talk with the cluster that failed; ``detail`` is a sentence of ours, never a foreign body.

    ``changed_nothing`` says that the request in question was certainly not carried out: never sent, or refused.
    """

    kind: Trouble
    detail: str
    endpoint: str = ""
    changed_nothing: bool = False


@dataclass(frozen=True)
class NodeState:
    """One node of the cluster; ``kv_port`` is the data port that the connection string's scheme asks for."""

    hostname: str
    status: str
    has_data_service: bool
    version: str = ""
    kv_host: str = ""
    kv_port: int = 0


@dataclass(frozen=True)
class BucketState:
    """One bucket; ``quota_per_node_bytes`` is ``quota.rawRAM``."""

    name: str
    uuid: str
    bucket_type: str
    quota_per_node_bytes: int
    replicas: int
    eviction_policy: str
    max_ttl_seconds: int | None
    node_statuses: tuple[str, ...]
    item_count: int
    scopes: dict[str, frozenset[str]] = field(default_factory=dict)

    @property
    def is_ready(self) -> bool:
        """Say whether every node serves the bucket: no node listed yet means still being created."""
        return bool(self.node_statuses) and all(status == "healthy" for status in self.node_statuses)


@dataclass(frozen=True)
class UserState:
    """One local user; ``mark`` is its free ``name`` field, which carries our ownership mark."""

    name: str
    mark: str
    uuid: str
    roles: frozenset[str]


class UserAccess(StrEnum):
    """What the management API says of the generated user when asked as that user."""

    GRANTED = "Granted"
    PASSWORD_REFUSED = "PasswordRefused"  # noqa: S105 - a finding, not a password
    RIGHTS_MISSING = "RightsMissing"


class LoginProblem(StrEnum):
    """Why the data service of a node did not let the user reach its collection."""

    UNREACHABLE = "Unreachable"
    FORBIDDEN_ADDRESS = "ForbiddenAddress"
    TLS = "TLS"
    NOT_COUCHBASE = "NotCouchbase"
    LOGIN_REFUSED = "LoginRefused"
    BUCKET_REFUSED = "BucketRefused"
    COLLECTION_REFUSED = "CollectionRefused"


@dataclass(frozen=True)
class LoginState:
    """Proof on every data node that the generated user logs in and sees its collection.

    ``problem`` is the first one found, in the order of the data nodes; ``detail`` is a sentence of ours.
    """

    proven_nodes: tuple[str, ...]
    missing_nodes: tuple[str, ...]
    detail: str = ""
    problem: LoginProblem | None = None

    @property
    def is_proven(self) -> bool:
        """Say whether no data node is missing."""
        return bool(self.proven_nodes) and not self.missing_nodes


@dataclass(frozen=True)
class CouchbaseState:
    """One consistent look at the cluster, restricted to what this resource needs."""

    cluster_uuid: str
    is_enterprise: bool
    version: str
    nodes: tuple[NodeState, ...]
    ram_quota_total_per_node_bytes: int
    ram_quota_used_per_node_bytes: int
    auto_failover_enabled: bool
    allows_ephemeral_failover_without_replicas: bool
    bucket: BucketState | None
    user: UserState | None
    login: LoginState | None
    user_access: UserAccess | None = None

    @property
    def data_nodes(self) -> tuple[NodeState, ...]:
        """Return the nodes that run the data service."""
        return tuple(node for node in self.nodes if node.has_data_service)


@dataclass(frozen=True)
class BucketGoal:
    """The bucket a resource wants; ``None`` fields are worked out from what the cluster has free.

    ``memory_quota_bytes`` is per data node, as in Couchbase's own API. ``working_set_bytes`` is one copy
    of the documents of the wished contexts over the whole cluster, without replicas and headroom; None
    where it is not known, so that a bucket without explicit quota cannot be created.
    ``management`` is ``Owned`` or ``Shared``, ``bucket_type`` ``Ephemeral`` or ``Couchbase``,
    ``reclaim_policy`` ``Retain`` or ``Delete``.
    """

    name: str
    management: str
    bucket_type: str
    memory_quota_bytes: int | None
    working_set_bytes: int | None
    replicas: int | None
    eviction_policy: str
    max_ttl_seconds: int
    accept_no_auto_failover: bool
    reclaim_policy: str


@dataclass(frozen=True)
class BucketRecord:
    """What status remembers of the bucket and the user: an intent before creation, UUIDs after it.

    ``requested_quota_bytes`` is the explicit quota per node that was applied last (None: none was asked
    for). ``refused_generation`` is the generation at which a second removal by others stopped us.
    """

    name: str
    cluster_uuid: str
    uuid: str = ""
    created: bool = False
    requested_quota_bytes: int | None = None
    user: str = ""
    user_uuid: str = ""
    removed_by_others_count: int = 0
    user_removed_by_others_count: int = 0
    refused_generation: int = 0

    def holds_bucket(self, name: str) -> bool:
        """Say whether the bucket of that name was made for this resource."""
        return self.created and bool(self.uuid) and self.name == name

    def holds_user(self, name: str) -> bool:
        """Say whether the user of that name was made for this resource."""
        return bool(self.user) and self.user == name


@dataclass(frozen=True)
class CouchbaseGoal:
    """Everything the provisioning arm needs to know of one resource.

    ``ownership_mark`` comes from ``core.couchbase.ownership.mark``; ``management_urls`` is empty when they are to
    be derived from the connection string.
    """

    provisioning: str
    connection_string: str
    management_urls: tuple[str, ...]
    bucket: BucketGoal
    scope: str
    collection: str
    user: str
    ownership_mark: str
    secret_name: str
    record: BucketRecord | None
