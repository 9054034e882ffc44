"""The emulator: a cluster with listening nodes, as an asynchronous context manager."""

import asyncio
import contextlib
import ssl
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from e2e.couchbase_emulator.counters import Counters, Mutations
from e2e.couchbase_emulator.faults import Faults
from e2e.couchbase_emulator.kv.frames import encode_leb128
from e2e.couchbase_emulator.kv.scram import Credential
from e2e.couchbase_emulator.listeners import NodeListeners
from e2e.couchbase_emulator.membership import join, leave, shift_vbuckets
from e2e.couchbase_emulator.model.bucket import Bucket, BucketSettings
from e2e.couchbase_emulator.model.cluster import AlternateAddress, Cluster, Node
from e2e.couchbase_emulator.model.documents import Document
from e2e.couchbase_emulator.model.manifest import Collection
from e2e.couchbase_emulator.model.users import User
from e2e.couchbase_emulator.options import EmulatorOptions
from e2e.couchbase_emulator.rest.role_strings import parse_roles
from e2e.couchbase_emulator.tls import ensure_tls_files


class Emulator:
    """An emulated Couchbase cluster.

    Keyword arguments are those of `EmulatorOptions`. Everything here belongs to the event loop it was entered in; use
    `running_emulator` from synchronous code.
    """

    def __init__(self, options: EmulatorOptions | None = None, /, **keywords: Any) -> None:
        self.options = options or EmulatorOptions(**keywords)
        self.cluster = Cluster(self.options)
        self.ca_path: Path | None = None
        self._listeners: list[NodeListeners] = []
        self._tls: ssl.SSLContext | None = None
        self._cleanup = contextlib.ExitStack()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Start all nodes."""
        options = self.options
        if not options.uninitialised:
            self.cluster.initialise(options.username, options.password, name="emulator")
        self._tls = self._tls_context() if options.tls else None
        self.cluster.on_bucket_removed = self._on_bucket_removed
        self.cluster.node_command = self._control
        self._listeners = [NodeListeners(self.cluster, node, self._tls) for node in self.cluster.nodes]
        try:
            for index, listeners in enumerate(self._listeners):
                await listeners.open(options.host, **self._first_ports(index))
        except OSError:
            await self.__aexit__(None, None, None)
            raise
        for name, quota_mib in options.buckets:
            self.create_bucket(name, quota_mib=quota_mib)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop all nodes."""
        for task in self._tasks:
            task.cancel()
        for listeners in self._listeners:
            await listeners.close()
        self._cleanup.close()

    # -- addresses -----------------------------------------------------------------------------------------------

    @property
    def connection_string(self) -> str:
        """Connection string with the plain data ports of all nodes."""
        return "couchbase://" + ",".join(f"{node.hostname}:{node.kv_port}" for node in self.cluster.members)

    @property
    def tls_connection_string(self) -> str:
        """Connection string with the TLS data ports; raises ValueError without TLS."""
        self._require_tls()
        return "couchbases://" + ",".join(f"{node.hostname}:{node.kv_tls_port}" for node in self.cluster.members)

    @property
    def kv_addresses(self) -> list[tuple[str, int]]:
        """Host and plain data port of every node."""
        return [(node.hostname, node.kv_port) for node in self.cluster.members]

    @property
    def management_urls(self) -> list[str]:
        """Base URL of the management interface of every node."""
        return [f"http://{node.hostname}:{node.mgmt_port}" for node in self.cluster.members]

    @property
    def tls_management_urls(self) -> list[str]:
        """The same over TLS; raises ValueError without TLS."""
        self._require_tls()
        return [f"https://{node.hostname}:{node.mgmt_tls_port}" for node in self.cluster.members]

    @property
    def admin_username(self) -> str:
        """Name of the full administrator."""
        return self.options.username

    @property
    def admin_password(self) -> str:
        """Password of the full administrator."""
        return self.options.password

    # -- inspection ----------------------------------------------------------------------------------------------

    @property
    def faults(self) -> Faults:
        """Switches for faults."""
        return self.cluster.faults

    @property
    def counters(self) -> Counters:
        """What clients did."""
        return self.cluster.counters

    @property
    def mutations(self) -> Mutations:
        """Successful changes so far, through REST and through the data service."""
        return self.cluster.counters.mutations

    def documents(self, bucket: str, scope: str = "_default", collection: str = "_default") -> dict[bytes, Document]:
        """Live documents of a collection by key; raises KeyError when it does not exist."""
        found = self._bucket(bucket)
        prefix = encode_leb128(self._collection(found, scope, collection).uid)
        return {
            key[len(prefix) :]: Document(bytes(document.value), document.flags, document.expiry)
            for key, document in found.documents.items()
            if key.startswith(prefix)
        }

    # -- provisioning without REST -------------------------------------------------------------------------------

    def create_bucket(self, name: str, *, quota_mib: int = 256, **settings: Any) -> None:
        """Add a bucket, ephemeral with nruEviction unless told otherwise (fields of `BucketSettings`)."""
        cache = BucketSettings(
            name,
            "ephemeral",
            quota_mib,
            replicas=0,
            eviction_policy="nruEviction",
            storage_backend="undefined",
        )
        self.cluster.add_bucket(replace(cache, **settings))

    def create_collection(self, bucket: str, scope: str, collection: str, *, max_ttl_seconds: int = 0) -> None:
        """Add a collection, and its scope when it is not there."""
        manifest = self._bucket(bucket).manifest
        if scope not in manifest.scopes:
            manifest.add_scope(scope)
        manifest.add_collection(manifest.scopes[scope], collection, max_ttl_seconds)
        self.cluster.revision += 1

    def drop_collection(self, bucket: str, scope: str, collection: str) -> None:
        """Drop a collection and its documents; the same name made again gets a new identifier."""
        found = self._bucket(bucket)
        self._collection(found, scope, collection)
        self.cluster.will_change_manifest(found)
        dropped = found.manifest.drop_collection(found.manifest.scopes[scope], collection)
        found.documents.drop_prefix(encode_leb128(dropped.uid))

    def put_documents(
        self, bucket: str, scope: str, collection: str, documents: Mapping[bytes, tuple[bytes, int]]
    ) -> None:
        """Write documents, given as value and flags, without a client; raises KeyError for an unknown collection."""
        found = self._bucket(bucket)
        prefix = encode_leb128(self._collection(found, scope, collection).uid)
        for key, (value, flags) in documents.items():
            vbucket = ((zlib.crc32(key) >> 16) & 0x7FFF) % len(found.documents.owners)
            found.documents.put(vbucket, prefix + key, value, flags=flags, expiry=0)

    def create_user(self, username: str, password: str, roles: str) -> None:
        """Add or replace a user; `roles` as in REST, such as `data_reader[b:s:c]`. Raises ValueError for bad roles."""
        grants, bad = parse_roles(self.cluster, roles)
        if bad:
            raise ValueError(f"unknown roles or parameters that do not exist: {', '.join(bad)}")
        self.cluster.put_user(User(username, Credential(password), grants))

    # -- nodes and time ------------------------------------------------------------------------------------------

    def kill_node(self, index: int) -> None:
        """Let a node die: sockets close, what its memory held for ephemeral buckets is lost."""
        self._listeners[index].kill()
        for bucket in self.cluster.buckets.values():
            if bucket.settings.bucket_type == "ephemeral":
                bucket.documents.lose_node(index)

    async def revive_node(self, index: int) -> None:
        """Start a dead node again on the ports it had; does nothing for a live one."""
        node = self.cluster.nodes[index]
        if not node.alive:
            await self._listeners[index].open(
                self.options.host,
                mgmt_port=node.mgmt_port,
                kv_port=node.kv_port,
                mgmt_tls_port=node.mgmt_tls_port or 0,
                kv_tls_port=node.kv_tls_port or 0,
            )

    def move_vbuckets(self, steps: int = 1) -> None:
        """Give every vBucket to a node further on, documents included: what clients see at the end of a rebalance."""
        shift_vbuckets(self.cluster, steps)

    def remove_node(self, index: int, *, close_sockets: bool = True) -> None:
        """Let a node leave: its vBuckets and their documents go to the others, then its sockets close.

        With `close_sockets=False` it stays reachable and answers "not my vBucket" with the new map, as a node does
        between the end of a rebalance and its ejection. Raises ValueError when it is the last one, or has left.
        """
        leave(self.cluster, index)
        if close_sockets:
            self._listeners[index].kill()

    async def add_node(self, index: int | None = None) -> int:
        """Let a node that left come back, on its old ports, or a new one join; returns its index.

        vBuckets are spread evenly again, documents included. Raises ValueError for a node that has not left.
        """
        if index is None:
            node = Node(len(self.cluster.nodes), self.options.advertise, alive=False, member=False)
            for user in self.cluster.users.values():
                node.users.put(user)
            self.cluster.nodes.append(node)
            self._listeners.append(NodeListeners(self.cluster, node, self._tls))
            await self._listeners[node.index].open(self.options.host, **self._first_ports(node.index))
            index = node.index
        elif not self.cluster.nodes[index].member:
            await self.revive_node(index)
        join(self.cluster, index)
        return index

    async def restart(self, down_seconds: float = 0.0) -> None:
        """Let all nodes die and, after a while, live again on their ports; ephemeral buckets come back empty."""
        for node in self.cluster.nodes:
            self.kill_node(node.index)
        await asyncio.sleep(down_seconds)
        for node in self.cluster.members:
            await self.revive_node(node.index)

    def set_alternate_address(self, index: int, hostname: str, ports: dict[str, int] | None = None) -> None:
        """Give a node an external address; `ports` by service (`kv`, `kvSSL`, `mgmt`, `mgmtSSL`), none: the same."""
        self.cluster.nodes[index].alternate = AlternateAddress(hostname, dict(ports or {}))
        self.cluster.revision += 1

    def advance_clock(self, seconds: float) -> None:
        """Let time pass for expiry."""
        self.cluster.clock.advance(seconds)

    # -- details -------------------------------------------------------------------------------------------------

    async def _control(self, command: str, value: int, revive_after_seconds: float | None) -> None:
        if command == "kill_node":
            self.cluster.nodes[value]  # raises IndexError while somebody can still be told
            # Later, so that the node that is asked can still answer.
            task = asyncio.create_task(self._kill_for_a_while(value, revive_after_seconds))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif command == "revive_node":
            await self.revive_node(value)
        elif command == "remove_node":
            self.remove_node(value)
        elif command == "add_node":
            await self.add_node(value)
        else:
            self.move_vbuckets(value)

    async def _kill_for_a_while(self, index: int, revive_after_seconds: float | None) -> None:
        await asyncio.sleep(0.05)
        self.kill_node(index)
        if revive_after_seconds is not None:
            await asyncio.sleep(revive_after_seconds)
            await self.revive_node(index)

    def _on_bucket_removed(self, bucket: Bucket) -> None:
        for listeners in self._listeners:
            listeners.drop_bucket(bucket)

    def _first_ports(self, index: int) -> dict[str, int]:
        options = self.options
        return {
            name: port + index if port else 0
            for name, port in (
                ("mgmt_port", options.mgmt_port),
                ("kv_port", options.kv_port),
                ("mgmt_tls_port", options.mgmt_tls_port),
                ("kv_tls_port", options.kv_tls_port),
            )
        }

    def _tls_context(self) -> ssl.SSLContext:
        directory = self.options.tls_dir
        if directory is None:
            directory = Path(self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="couchbase-emulator-")))
        names = dict.fromkeys((self.options.advertise, "localhost", "127.0.0.1", *self.options.tls_names))
        files = ensure_tls_files(directory, tuple(names))
        self.ca_path = files.ca
        self.cluster.ca_pem = files.ca.read_text()
        return files.server_context()

    def _require_tls(self) -> None:
        if not self.options.tls:
            raise ValueError("the emulator was started without TLS")

    def _bucket(self, name: str) -> Bucket:
        bucket = self.cluster.buckets.get(name)
        if bucket is None:
            raise KeyError(f"no bucket {name!r}")
        return bucket

    @staticmethod
    def _collection(bucket: Bucket, scope: str, name: str) -> Collection:
        collection = bucket.manifest.find(scope, name)
        if collection is None:
            raise KeyError(f"no collection {scope}.{name} in bucket {bucket.name!r}")
        return collection
