"""The emulator: a cluster with listening nodes, as an asynchronous context manager."""

import asyncio
import contextlib
import ssl
import tempfile
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from e2e.couchbase_emulator.counters import Counters, Mutations
from e2e.couchbase_emulator.faults import Faults
from e2e.couchbase_emulator.kv.frames import encode_leb128
from e2e.couchbase_emulator.kv.scram import Credential
from e2e.couchbase_emulator.listeners import NodeListeners
from e2e.couchbase_emulator.model.bucket import Bucket, BucketSettings
from e2e.couchbase_emulator.model.cluster import Cluster
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
        self._cleanup = contextlib.ExitStack()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Start all nodes."""
        options = self.options
        if not options.uninitialised:
            self.cluster.initialise(options.username, options.password, name="emulator")
        tls_context = self._tls_context() if options.tls else None
        self.cluster.on_bucket_removed = self._on_bucket_removed
        self.cluster.node_command = self._control
        self._listeners = [NodeListeners(self.cluster, node, tls_context) for node in self.cluster.nodes]
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
        return "couchbase://" + ",".join(f"{node.hostname}:{node.kv_port}" for node in self.cluster.nodes)

    @property
    def tls_connection_string(self) -> str:
        """Connection string with the TLS data ports; raises ValueError without TLS."""
        self._require_tls()
        return "couchbases://" + ",".join(f"{node.hostname}:{node.kv_tls_port}" for node in self.cluster.nodes)

    @property
    def management_urls(self) -> list[str]:
        """Base URL of the management interface of every node."""
        return [f"http://{node.hostname}:{node.mgmt_port}" for node in self.cluster.nodes]

    @property
    def tls_management_urls(self) -> list[str]:
        """The same over TLS; raises ValueError without TLS."""
        self._require_tls()
        return [f"https://{node.hostname}:{node.mgmt_tls_port}" for node in self.cluster.nodes]

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
        count = len(self.cluster.nodes)
        for bucket in self.cluster.buckets.values():
            bucket.documents.move([(owner + steps) % count for owner in bucket.documents.owners])
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
