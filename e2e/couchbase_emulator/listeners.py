"""Sockets of one node: management and data ports, plain and TLS; they can be closed and opened again."""

import asyncio
import ssl
from collections.abc import Callable

from aiohttp import web

from e2e.couchbase_emulator.kv.connection import KvConnection
from e2e.couchbase_emulator.model.bucket import Bucket
from e2e.couchbase_emulator.model.cluster import Cluster, Node
from e2e.couchbase_emulator.rest.application import management_application


class NodeListeners:
    """Listens for one node."""

    def __init__(self, cluster: Cluster, node: Node, tls_context: ssl.SSLContext | None) -> None:
        self._cluster = cluster
        self._node = node
        self._tls_context = tls_context
        self._connections: set[KvConnection] = set()
        self._servers: list[asyncio.AbstractServer] = []
        self._runner = web.AppRunner(management_application(cluster, node), access_log=None, handle_signals=False)

    async def open(self, host: str, *, mgmt_port: int, kv_port: int, mgmt_tls_port: int, kv_tls_port: int) -> None:
        """Listen; ports of 0 are chosen. Raises OSError when a port is taken."""
        if self._runner.server is None:
            await self._runner.setup()
        node = self._node
        node.mgmt_port = await self._listen(self._management, host, mgmt_port)
        node.kv_port = await self._listen(self._data(encrypted=False), host, kv_port)
        if self._tls_context is not None:
            node.mgmt_tls_port = await self._listen(self._management, host, mgmt_tls_port, self._tls_context)
            node.kv_tls_port = await self._listen(self._data(encrypted=True), host, kv_tls_port, self._tls_context)
        node.alive = True

    def kill(self) -> None:
        """Close every socket at once, as if the process had died."""
        self._node.alive = False
        for server in self._servers:
            server.close()
        self._servers.clear()
        for connection in list(self._connections):
            connection.abort()
        for handler in self._runner.server.connections if self._runner.server else []:
            if handler.transport is not None:
                handler.transport.abort()

    async def close(self) -> None:
        """Stop for good."""
        self.kill()
        await self._runner.cleanup()

    def drop_bucket(self, bucket: Bucket) -> None:
        """Close the data connections that have a deleted bucket open."""
        for connection in [connection for connection in self._connections if connection.uses(bucket)]:
            connection.abort()

    def _management(self) -> asyncio.BaseProtocol:
        if self._runner.server is None:
            raise RuntimeError("the management interface is not set up")
        return self._runner.server()

    def _data(self, *, encrypted: bool) -> Callable[[], asyncio.BaseProtocol]:
        return lambda: KvConnection(self._cluster, self._node, self._connections, encrypted=encrypted)

    async def _listen(
        self,
        protocol: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        tls_context: ssl.SSLContext | None = None,
    ) -> int:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(protocol, host, port, ssl=tls_context, backlog=512)
        self._servers.append(server)
        bound: int = server.sockets[0].getsockname()[1]
        return bound
