"""Roles as text: `data_reader[bucket:scope:collection]`, and as JSON."""

import re
from typing import Any

from e2e.couchbase_emulator.model.cluster import Cluster
from e2e.couchbase_emulator.model.roles import ROLES, RoleDefinition, Target
from e2e.couchbase_emulator.model.users import RoleGrant

_ROLE = re.compile(r"(?P<name>[A-Za-z_]+)(\[(?P<parameters>[^\]\[]+)\])?")


def known_roles(cluster: Cluster) -> dict[str, RoleDefinition]:
    """Roles of this edition and version."""
    roles = {name: role for name, role in ROLES.items() if role.community or cluster.options.is_enterprise}
    roles.pop("security_admin_local" if cluster.options.major_minor >= (8, 0) else "user_admin_local", None)
    return roles


def parse_roles(cluster: Cluster, text: str) -> tuple[tuple[RoleGrant, ...], list[str]]:
    """Grants pinned to what exists now, and the roles that are unknown, malformed or name what does not exist."""
    grants: dict[RoleGrant, None] = {}
    bad = []
    for raw in (part.strip() for part in text.split(",") if part.strip()):
        grant = _parse(cluster, raw)
        if grant is None:
            bad.append(raw)
        else:
            grants[grant] = None
    return tuple(grants), bad


def _parse(cluster: Cluster, raw: str) -> RoleGrant | None:
    match = _ROLE.fullmatch(raw)
    if match is None:
        return None
    name = match["name"].lower()
    definition = known_roles(cluster).get(name)
    if definition is None:
        return None
    parameters = match["parameters"].split(":") if match["parameters"] else []
    if bool(parameters) != bool(definition.parameters) or len(parameters) > definition.parameters:
        return None
    if parameters in ([], ["*"]):
        return RoleGrant(name)
    return _pin(cluster, name, parameters)


def _pin(cluster: Cluster, role: str, parameters: list[str]) -> RoleGrant | None:
    names: list[str | None] = [None if part == "*" else part for part in parameters]
    names += [None] * (3 - len(names))
    bucket_name, scope_name, collection_name = names
    bucket = cluster.buckets.get(bucket_name or "")
    if bucket is None:
        return None
    if scope_name is None:
        return RoleGrant(role, Target(bucket_name), bucket.uuid) if collection_name is None else None
    scope = bucket.manifest.scopes.get(scope_name)
    if scope is None:
        return None
    if collection_name is None:
        return RoleGrant(role, Target(bucket_name, scope_name), bucket.uuid, scope.uid)
    collection = scope.collections.get(collection_name)
    if collection is None:
        return None
    target = Target(bucket_name, scope_name, collection_name)
    return RoleGrant(role, target, bucket.uuid, scope.uid, collection.uid)


def grant_json(grant: RoleGrant, *, with_origins: bool = True) -> dict[str, Any]:
    """A grant as REST shows it; parameters that mean all are `*`."""
    body: dict[str, Any] = {"role": grant.role}
    levels = zip(("bucket_name", "scope_name", "collection_name"), grant.target, strict=True)
    parameters = ROLES[grant.role].parameters
    body |= {field: value or "*" for field, value in list(levels)[:parameters]}
    if with_origins:
        body["origins"] = [{"type": "user"}]
    return body
