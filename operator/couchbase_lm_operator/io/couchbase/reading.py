"""One look at a cluster over its management API, restricted to what a resource needs. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from couchbase_lm_operator.core.couchbase_state import (
    BucketState,
    CouchbaseGoal,
    CouchbaseState,
    CouchbaseTrouble,
    Trouble,
    UserAccess,
    UserState,
)
from couchbase_lm_operator.io.couchbase import answers, paths
from couchbase_lm_operator.io.couchbase.http import Answer, ManagementApi, TroubleError
from couchbase_lm_operator.io.couchbase.node_services import nodes_from

if TYPE_CHECKING:
    from couchbase_lm_operator.core.couchbase.connection_string import ConnectionString
    from couchbase_lm_operator.io.couchbase.access import Credentials

_ADMIN_ROLES = "cluster_admin and user_admin_local (before 8.0: cluster_admin and security_admin_local)"


async def read_state(
    api: ManagementApi, goal: CouchbaseGoal, connection: ConnectionString, user: Credentials | None
) -> CouchbaseState:
    """Return the state of the cluster, without the login proof; raises TroubleError.

    ``user`` is the generated user as the Secret has it; None when there is no Secret yet.
    """
    pools = await _pools(api)
    cluster_uuid = pools["uuid"]
    pool = _dict(await read(api, paths.POOL, "the cluster"))
    services_answer = await api.request("GET", paths.NODE_SERVICES)
    asked_host = (urlsplit(services_answer.endpoint).hostname or "").strip("[]")
    addresses = nodes_from(_dict(content_of(services_answer, "the node services")), asked_host, connection)
    failover_on, failover_ephemeral = answers.auto_failover(
        await read(api, paths.AUTO_FAILOVER, "the auto-failover settings")
    )
    bucket = await _bucket(api, goal.bucket.name)
    found_user = await read_user(api, goal.user)
    total, used = answers.ram_quota_per_node_bytes(pool)
    access = None
    if bucket is not None and found_user is not None and user is not None:
        access = await _user_access(api, goal, user)
    return CouchbaseState(
        cluster_uuid=cluster_uuid,
        is_enterprise=pools.get("isEnterprise") is True,
        version=str(pools.get("implementationVersion", "")),
        nodes=answers.nodes(pool, addresses),
        ram_quota_total_per_node_bytes=total,
        ram_quota_used_per_node_bytes=used,
        auto_failover_enabled=failover_on,
        allows_ephemeral_failover_without_replicas=failover_ephemeral,
        bucket=bucket,
        user=found_user,
        login=None,
        user_access=access,
    )


async def read_user(api: ManagementApi, name: str) -> UserState | None:
    """Return a local user, or None when there is none; raises TroubleError."""
    answer = await api.request("GET", paths.local_user(name))
    if answer.status == 404:
        return None
    return answers.user(content_of(answer, "the users"), name)


async def read(api: ManagementApi, path: str, what: str) -> Any:
    """Return the JSON of a successful GET; raises TroubleError for every other answer."""
    return content_of(await api.request("GET", path), what)


def content_of(answer: Answer, what: str) -> Any:
    """Return the JSON of a successful answer; raises TroubleError for every other one."""
    trouble = trouble_of(answer, what)
    if trouble is not None:
        raise TroubleError(trouble)
    if not isinstance(answer.content, dict | list):
        raise answers.UnexpectedAnswerError(what)
    return answer.content


def trouble_of(answer: Answer, what: str) -> CouchbaseTrouble | None:
    """Return what an unsuccessful answer means, whatever was asked; None when it was successful."""
    status, endpoint = answer.status, answer.endpoint
    if 200 <= status < 300:
        return None
    if status == 401:
        return CouchbaseTrouble(
            Trouble.BAD_CREDENTIALS,
            f"Couchbase at {endpoint} refuses the admin credentials: put the right username and password into the "
            "Secret of spec.couchbase.adminSecretRef.",
            endpoint,
        )
    if status == 403:
        return CouchbaseTrouble(
            Trouble.NOT_PERMITTED,
            f"The admin user may not use {what}: give it the roles {_ADMIN_ROLES}.",
            endpoint,
        )
    if status in {429, 502, 503, 504}:
        return CouchbaseTrouble(
            Trouble.BUSY, f"Couchbase at {endpoint} asks to come back later (HTTP {status}).", endpoint
        )
    return CouchbaseTrouble(
        Trouble.UNEXPECTED, f"Couchbase at {endpoint} answers HTTP {status} when asked for {what}.", endpoint
    )


async def _pools(api: ManagementApi) -> dict[str, Any]:
    answer = await api.request("GET", paths.POOLS)
    content = answer.content
    if answer.status in {401, 403, 429, 500, 502, 503, 504}:
        content_of(answer, "the cluster")
    if not isinstance(content, dict) or "implementationVersion" not in content or "pools" not in content:
        raise TroubleError(
            CouchbaseTrouble(
                Trouble.NOT_COUCHBASE,
                f"What answers at {answer.endpoint} is not a Couchbase management API: name its port (8091, with TLS "
                "18091) in spec.couchbase.managementEndpoints.",
                answer.endpoint,
            )
        )
    if not content["pools"] or not isinstance(content.get("uuid"), str):
        raise TroubleError(
            CouchbaseTrouble(
                Trouble.NOT_INITIALISED,
                f"The Couchbase node at {answer.endpoint} belongs to no cluster yet: initialise it.",
                answer.endpoint,
            )
        )
    return content


async def _bucket(api: ManagementApi, name: str) -> BucketState | None:
    answer = await api.request("GET", paths.bucket_without_map(name))
    if answer.status == 404:
        return None
    content = content_of(answer, "the bucket")
    # A bucket just created has no manifest yet, one just deleted none any more.
    manifest = await api.request("GET", paths.scopes(name))
    scopes = {} if manifest.status == 404 else answers.scopes(content_of(manifest, "the scopes"))
    return answers.bucket(content, scopes)


async def _user_access(api: ManagementApi, goal: CouchbaseGoal, user: Credentials) -> UserAccess:
    """Ask as the generated user what it may do: tells a wrong password and stale roles from propagation."""
    keyspace = f"{goal.bucket.name}:{goal.scope}:{goal.collection}"
    wanted = [f"cluster.collection[{keyspace}].data.docs!{verb}" for verb in ("read", "upsert", "delete")]
    answer = await api.request("POST", paths.CHECK_PERMISSIONS, text=",".join(wanted), credentials=user)
    if answer.status == 401:
        return UserAccess.PASSWORD_REFUSED
    if answer.status == 403:
        return UserAccess.RIGHTS_MISSING
    granted = _dict(content_of(answer, "the user's permissions"))
    return UserAccess.GRANTED if all(granted.get(one) is True for one in wanted) else UserAccess.RIGHTS_MISSING


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
