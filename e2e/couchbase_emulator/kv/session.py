"""State of one data connection: who is logged in, which bucket is open, what was agreed; and how answers are sent."""

import json
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from e2e.couchbase_emulator.kv.frames import Buffer, Request, response_head
from e2e.couchbase_emulator.kv.opcodes import DATATYPE_JSON, QUIET_OF, Feature, Opcode, Status
from e2e.couchbase_emulator.model.roles import PermissionObject, Target
from e2e.couchbase_emulator.topology import bucket_config, cluster_config, encoded

if TYPE_CHECKING:
    from e2e.couchbase_emulator.kv.scram import ScramExchange
    from e2e.couchbase_emulator.model.bucket import Bucket
    from e2e.couchbase_emulator.model.cluster import Cluster, Node
    from e2e.couchbase_emulator.model.manifest import Collection, Scope

# Privileges of the data service and the permission behind each (ns_server `memcached_permissions`).
_PRIVILEGES: dict[str, tuple[tuple[str, ...], str]] = {
    "Read": (("data", "docs"), "read"),
    "Insert": (("data", "docs"), "insert"),
    "Upsert": (("data", "docs"), "upsert"),
    "Delete": (("data", "docs"), "delete"),
    "RangeScan": (("data", "docs"), "range_scan"),
    "SimpleStats": (("stats",), "read"),
}
_READS = frozenset({Opcode.GET, Opcode.GETK, Opcode.GAT, Opcode.GET_META})

Send = Callable[[bytes, Buffer], None]


class Session:
    """One logged-in or not yet logged-in connection."""

    def __init__(self, cluster: "Cluster", node: "Node", send: Send, *, encrypted: bool) -> None:
        self.cluster = cluster
        self.node = node
        self.encrypted = encrypted
        self.features: frozenset[int] = frozenset()
        self.username: str | None = None
        self.bucket: Bucket | None = None
        self.scram: ScramExchange | None = None
        self.agent = ""
        self._send = send
        self._privileges: dict[int, frozenset[str]] = {}
        self._privileges_of: tuple[Any, ...] = ()

    def reply(
        self,
        request: Request,
        status: int = Status.SUCCESS,
        *,
        extras: bytes = b"",
        key: bytes = b"",
        value: Buffer = b"",
        datatype: int = 0,
        cas: int = 0,
    ) -> None:
        """Answer a request, unless it is a quiet one that wants no such answer."""
        plain_opcode = QUIET_OF.get(request.opcode)
        if plain_opcode is not None:
            silent = Status.KEY_ENOENT if plain_opcode in _READS else Status.SUCCESS
            if status == silent:
                return
        head = response_head(
            request, status, extras=extras, key=key, value_bytes=len(value), datatype=datatype, cas=cas
        )
        self._send(head, value)

    def refuse(self, request: Request, status: int, context: str = "", details: dict[str, Any] | None = None) -> None:
        """Answer with an error; its reason travels as JSON when the client asked for extended errors."""
        body: dict[str, Any] = dict(details or {})
        if context and Feature.XERROR in self.features:
            body["error"] = {"context": context, "ref": str(uuid.uuid4())}
        value = json.dumps(body).encode() if body else b""
        json_flag = DATATYPE_JSON if value and Feature.JSON in self.features else 0
        self.reply(request, status, value=value, datatype=json_flag)

    def refuse_unknown_collection(self, request: Request, status: int = Status.UNKNOWN_COLLECTION) -> None:
        """Answer that a collection or scope is not there, with the manifest uid the server goes by."""
        uid = self.bucket.manifest_on(self.node.index).uid if self.bucket else 0
        self.refuse(request, status, details={"manifest_uid": f"{uid:x}"})

    def refuse_foreign_vbucket(self, request: Request) -> None:
        """Answer that another node holds the vBucket; the current map comes along."""
        self.reply(request, Status.NOT_MY_VBUCKET, value=self.config(), datatype=DATATYPE_JSON)

    def holds_vbucket(self, vbucket: int) -> bool:
        """Whether this node holds a vBucket of the open bucket."""
        owners = self.bucket.documents.owners if self.bucket else []
        return vbucket < len(owners) and owners[vbucket] == self.node.index

    def config(self) -> bytes:
        """Cluster configuration for this connection."""
        if self.bucket is not None:
            return encoded(bucket_config(self.cluster, self.bucket, self.node))
        return encoded(cluster_config(self.cluster, self.node))

    def privileges(self, scope: "Scope", collection: "Collection") -> frozenset[str]:
        """Privileges in a collection of the open bucket."""
        if self.bucket is None or self.username is None:
            return frozenset()
        state = (
            self.node.users.generation,
            self.bucket.manifest_on(self.node.index).uid,
            self.username,
            self.bucket.uuid,
        )
        if state != self._privileges_of:
            self._privileges, self._privileges_of = {}, state
        known = self._privileges.get(collection.uid)
        if known is None:
            target = Target(self.bucket.name, scope.name, collection.name)
            known = self._privileges[collection.uid] = self._privileges_in(target)
        return known

    def hides_collection(self, held: frozenset[str]) -> bool:
        """Whether a collection in which the user has these privileges must look like a missing one.

        So it does to users with rights elsewhere in the bucket; who has none in the whole bucket is plainly refused
        (kv_engine `PrivilegeContext::check`).
        """
        return not held and self.bucket is not None and self.may_see_bucket(self.bucket.name)

    def may_see_bucket(self, name: str) -> bool:
        """Whether the user holds any data privilege in any collection of a bucket."""
        bucket = self.cluster.buckets.get(name)
        if bucket is None or self.username is None:
            return False
        return any(
            self._privileges_in(Target(name, scope.name, collection.name))
            for scope, collection in bucket.manifest_on(self.node.index).by_id.values()
        )

    def is_administrator(self) -> bool:
        """Whether the user may see that a bucket does not exist."""
        return self._allowed(("admin", "memcached"), "write")

    def _privileges_in(self, target: Target) -> frozenset[str]:
        return frozenset(
            name for name, (path, operation) in _PRIVILEGES.items() if self._allowed((target, *path), operation)
        )

    def _allowed(self, wanted: PermissionObject, operation: str) -> bool:
        grants = self.cluster.grants_on(self.node, self.username or "")
        return any(grant.allows(wanted, operation) for grant in grants)
