"""Roles and what they allow, in the terms of ns_server's `menelaus_roles`.

A role is an ordered list of (object pattern, operations); the first pattern that is a prefix of the asked object
decides. Objects are tuples of words and one `Target`.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

# In a question: satisfied by any bucket, scope or collection of that level ("may they at least somewhere?").
ANY: Final = "."


class Target(NamedTuple):
    """A bucket, scope or collection.

    In a role None means all of that level; in a question it means that the question is not about that level, and
    `ANY` that any one will do.
    """

    bucket: str | None = None
    scope: str | None = None
    collection: str | None = None


class Own(NamedTuple):
    """Placeholder for the role's own parameters down to `depth` (1 bucket, 2 scope, 3 collection)."""

    depth: int


EVERYWHERE: Final = Target()
ANY_BUCKET: Final = EVERYWHERE
_OWN_BUCKET: Final = Own(1)
_OWN_SCOPE: Final = Own(2)
_OWN_COLLECTION: Final = Own(3)

Vertex = str | Target | Own
Pattern = tuple[Vertex, ...]
PermissionObject = tuple[str | Target, ...]
ALL: Final = frozenset({"*"})
NONE: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True)
class RoleDefinition:
    """A role; `parameters` counts bucket, scope, collection."""

    parameters: int
    title: str
    grants: tuple[tuple[Pattern, frozenset[str]], ...]
    community: bool = False
    # Only full administrators may hand out roles that administrate security.
    security: bool = False


def _ops(*names: str) -> frozenset[str]:
    return frozenset(names)


_NO_DATA: tuple[tuple[Pattern, frozenset[str]], ...] = (
    ((ANY_BUCKET, "data"), NONE),
    ((ANY_BUCKET, "views"), NONE),
    ((ANY_BUCKET, "n1ql"), NONE),
    ((ANY_BUCKET, "fts"), NONE),
    ((ANY_BUCKET, "analytics"), NONE),
)
_BUCKET_AND_POOLS: tuple[tuple[Pattern, frozenset[str]], ...] = (
    ((_OWN_BUCKET, "settings"), _ops("read")),
    (("pools",), _ops("read")),
    (("app_telemetry",), _ops("write")),
)

ROLES: Final[dict[str, RoleDefinition]] = {
    "admin": RoleDefinition(0, "Full Admin", (((), ALL),), community=True, security=True),
    "ro_admin": RoleDefinition(
        0,
        "Read-Only Admin",
        (*_NO_DATA, (("admin",), NONE), (("ui",), NONE), ((), _ops("read", "list"))),
        community=True,
    ),
    "security_admin": RoleDefinition(
        0,
        "Security Admin",
        (
            (("admin", "security", "admin"), NONE),
            (("admin", "security"), ALL),
            (("admin", "users"), _ops("read")),
            *_NO_DATA,
            ((ANY_BUCKET,), _ops("read")),
            ((), _ops("read", "list")),
        ),
        security=True,
    ),
    "user_admin_local": RoleDefinition(
        0,
        "Local User Admin",
        (
            (("admin", "security"), NONE),
            (("admin", "users", "admin"), NONE),
            (("admin", "users", "external"), NONE),
            (("admin", "users"), ALL),
            *_NO_DATA,
            ((ANY_BUCKET,), _ops("read")),
            ((), _ops("read", "list")),
        ),
        security=True,
    ),
    "cluster_admin": RoleDefinition(
        0,
        "Cluster Admin",
        (
            (("admin", "internal"), NONE),
            (("admin", "security"), NONE),
            (("admin", "users"), NONE),
            (("admin", "diag"), _ops("read")),
            *_NO_DATA,
            (("ui",), NONE),
            ((), ALL),
        ),
    ),
    "bucket_admin": RoleDefinition(
        1,
        "Bucket Admin",
        (
            ((_OWN_BUCKET, "data"), NONE),
            ((_OWN_BUCKET,), ALL),
            ((ANY_BUCKET, "settings"), _ops("read")),
            ((ANY_BUCKET,), NONE),
            (("admin",), NONE),
            ((), _ops("read")),
        ),
    ),
    "scope_admin": RoleDefinition(2, "Manage Scopes", (((_OWN_SCOPE, "collections"), ALL),)),
    "bucket_full_access": RoleDefinition(
        1,
        "Application Access",
        (
            ((_OWN_BUCKET, "data", "docs"), _ops("read", "insert", "delete", "upsert", "range_scan", "sread")),
            ((_OWN_BUCKET, "data"), ALL),
            ((_OWN_BUCKET, "settings"), _ops("read")),
            ((_OWN_BUCKET,), _ops("read", "flush")),
            (("pools",), _ops("read")),
            (("app_telemetry",), _ops("write")),
        ),
        community=True,
    ),
    "data_reader": RoleDefinition(
        3,
        "Data Reader",
        (((_OWN_COLLECTION, "data", "docs"), _ops("read", "range_scan", "sread")), *_BUCKET_AND_POOLS),
    ),
    "data_writer": RoleDefinition(
        3,
        "Data Writer",
        (((_OWN_COLLECTION, "data", "docs"), _ops("insert", "upsert", "delete")), *_BUCKET_AND_POOLS),
    ),
    "data_monitoring": RoleDefinition(
        3,
        "Data Monitor",
        (
            ((_OWN_COLLECTION, "stats"), _ops("read")),
            ((_OWN_COLLECTION, "collections"), _ops("read")),
            ((_OWN_BUCKET, "settings"), _ops("read")),
            (("tasks",), _ops("read")),
            (("pools",), _ops("read")),
        ),
    ),
    "external_stats_reader": RoleDefinition(0, "External Stats Reader", ((("admin", "stats_export"), _ops("read")),)),
}
# Up to 7.6 one role held both security and user administration of local users.
ROLES["security_admin_local"] = RoleDefinition(
    0, "Local User Security Admin", ROLES["user_admin_local"].grants, security=True
)


def _within(part: str | None, wanted: str | None) -> bool:
    return part is None or wanted in (ANY, part)


def _target_covers(pattern: Target, wanted: Target) -> bool:
    return (
        _within(pattern.bucket, wanted.bucket)
        and _within(pattern.scope, wanted.scope)
        and _within(pattern.collection, wanted.collection)
    )


def _vertex_matches(vertex: Vertex, own: Target, wanted: str | Target) -> bool:
    if isinstance(vertex, Own):
        vertex = Target(*own[: vertex.depth])
    if isinstance(vertex, Target):
        return isinstance(wanted, Target) and _target_covers(vertex, wanted)
    return vertex == wanted


def role_allows(role: str, own: Target, wanted: PermissionObject, operation: str) -> bool:
    """Whether `role` with the parameters `own` allows `operation` on `wanted`."""
    for pattern, operations in ROLES[role].grants:
        if len(pattern) <= len(wanted) and all(
            _vertex_matches(vertex, own, wanted[index]) for index, vertex in enumerate(pattern)
        ):
            return operations is ALL or operation in operations
    return False
