"""The present map of the bucket, the pools of its nodes, and the number of the collection."""

from __future__ import annotations

import logging
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any

from couchbase_lm_cache.direct.addresses import Node
from couchbase_lm_cache.direct.cluster_map import ClusterMap, parse_cluster_map
from couchbase_lm_cache.direct.node_pool import NodePool, NodeUnreachableError
from couchbase_lm_cache.direct.session import (
    BucketRefusedError,
    CollectionRefusedError,
    LoginRefusedError,
    Session,
)
from couchbase_lm_cache.direct.stream import ConnectionLostError
from couchbase_lm_cache.direct.wire import ProtocolError, leb128
from couchbase_lm_cache.transport import probe_key

if TYPE_CHECKING:
    from couchbase_lm_cache.credentials import Credentials
    from couchbase_lm_cache.direct.addresses import ConnectionAddress
    from couchbase_lm_cache.settings import CouchbaseLMCacheConfig

logger = logging.getLogger(__name__)

SESSION_ERRORS = (
    ConnectionLostError,
    ProtocolError,
    LoginRefusedError,
    BucketRefusedError,
    NodeUnreachableError,
    ssl.SSLCertVerificationError,
)
"""Everything that keeps a session from being had."""

_SMALL_LIMIT = 4
_PROBE_KEYS_PER_VBUCKET = 16
"""Tried, before a node is taken for one without documents: enough for one that owns a single vBucket."""
_CONNECT_LIMIT_SECONDS = 2.0
_REFRESH_INTERVAL_SECONDS = 0.1
_REFRESH_TIMEOUT_SECONDS = 1.0


class Topology:
    """Knows where documents are and lends sessions to go there.

    Traffic of four kinds has connections of its own: small answers never wait behind megabytes, loads,
    which a request waits for, never behind stores, and the probe never for calls that hang.

    Args:
        settings: bucket, collection and connections per node.
        credentials: who logs in.
        address: parsed connection string.
        tls: context for TLS, or None.
    """

    def __init__(
        self,
        settings: CouchbaseLMCacheConfig,
        credentials: Credentials,
        address: ConnectionAddress,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._settings = settings
        self._credentials = credentials
        self._address = address
        self._tls = tls
        loads = settings.connections_per_node
        self._limits = {"small": _SMALL_LIMIT, "load": loads, "store": max(1, loads // 2), "probe": 1}
        self._lock = threading.Lock()
        self._pools: dict[tuple[Node, str], NodePool] = {}
        self._map: ClusterMap | None = None
        self._refreshed_at = 0.0
        self._closed = False
        self.collection_prefix = b""

    @property
    def map(self) -> ClusterMap:
        """Return the present map.

        Raises:
            RuntimeError: :meth:`bootstrap` has not succeeded yet.
        """
        if self._map is None:
            raise RuntimeError("the topology is not known yet")
        return self._map

    def probe_keys(self) -> list[str]:
        """Return keys of which each node owns one; so does nobody, where nobody owns a part of the bucket."""
        present = self.map
        unmet = set(present.owners)
        found = []
        for number in range(_PROBE_KEYS_PER_VBUCKET * len(present.owners)):
            key = probe_key(number)
            owner = present.owners[present.vbucket_of(key.encode())]
            if owner in unmet:
                unmet.discard(owner)
                found.append(key)
            if not unmet:
                break
        return found

    def bootstrap(self, deadline: float) -> None:
        """Learn map and collection from the first of the given hosts that answers.

        Raises:
            ConnectionLostError, ProtocolError, LoginRefusedError, BucketRefusedError, NodeUnreachableError,
            ssl.SSLCertVerificationError: what the last host failed with.
            CollectionRefusedError: the collection cannot be used.
        """
        failure: Exception = ConnectionLostError("no host was given")
        # A name server may take half of the time: the hosts must answer as well.
        seeds = self._address.seeds((deadline - time.monotonic()) / 2)
        for position, seed in enumerate(seeds):
            share = (deadline - time.monotonic()) / (len(seeds) - position)
            try:
                session = self._open(seed, time.monotonic() + share)
            except SESSION_ERRORS as error:
                failure = error
                continue
            try:
                self.learn_map(session.cluster_config(deadline), seed)
                self._learn_collection(session, deadline)
            except (ConnectionLostError, ProtocolError) as error:
                failure = error
                continue
            finally:
                session.close()
            return
        raise failure

    def pool(self, node: Node, kind: str) -> NodePool:
        """Return the sessions of ``node`` for one kind of traffic: small, load, store or probe."""
        with self._lock:
            pool = self._pools.get((node, kind))
            if pool is None:
                pool = NodePool(lambda deadline: self._open(node, deadline), self._limits[kind])
                self._pools[node, kind] = pool
                if self._closed:
                    pool.close()
            return pool

    def learn_map(self, content: bytes, told_by: Node) -> bool:
        """Take over a configuration when it is newer; say whether it was.

        Raises:
            ProtocolError: it is none.
        """
        new = parse_cluster_map(content, told_by, self._address)
        with self._lock:
            if self._map is not None and new.revision <= self._map.revision:
                return False
            before, self._map = self._map, new
            gone = [key for key in self._pools if key[0] not in new.nodes]
            pools = [self._pools.pop(key) for key in gone]
        for pool in pools:
            pool.close()
        if before is not None:
            logger.info("The cluster has a new map with %d data nodes", len(new.nodes))
        return True

    def refresh(self, deadline: float) -> bool:
        """Ask the nodes for a newer map, not more often than ten times a second; say whether there was one."""
        now = time.monotonic()
        with self._lock:
            if now - self._refreshed_at < _REFRESH_INTERVAL_SECONDS:
                return False
            self._refreshed_at = now
        limit = min(deadline, now + _REFRESH_TIMEOUT_SECONDS)
        nodes = self.map.nodes
        for position, node in enumerate(nodes):
            # A share of the time for each: the others must not pay for a node that keeps silent.
            began = time.monotonic()
            share = began + (limit - began) / (len(nodes) - position)
            config: Any = self._with_session(node, share, lambda session, until=share: session.cluster_config(until))
            try:
                if config and self.learn_map(config, node):
                    return True
            except ProtocolError as error:
                logger.debug("A configuration from %s was not used: %s", node, error)
        return False

    def renew_collection(self, node: Node, deadline: float) -> None:
        """Ask for the number of the collection again.

        Raises:
            CollectionRefusedError: there is none any more, or the user has no right on it.
        """
        self._with_session(node, deadline, lambda session: self._learn_collection(session, deadline))

    def close(self) -> None:
        """Disconnect; sessions in use fail."""
        with self._lock:
            self._closed = True
            pools = list(self._pools.values())
        for pool in pools:
            pool.close()

    def _open(self, node: Node, deadline: float) -> Session:
        limit = min(deadline, time.monotonic() + _CONNECT_LIMIT_SECONDS) if self._map else deadline
        return Session(node, self._tls, self._credentials, self._settings.bucket_name, limit)

    def _learn_collection(self, session: Session, deadline: float) -> None:
        scope, collection = self._settings.scope_name, self._settings.collection_name
        self.collection_prefix = leb128(session.collection_id(scope, collection, deadline))

    def _with_session(self, node: Node, deadline: float, action: Any) -> Any:
        """Run ``action`` with a session; None when none can be had or it breaks."""
        pool, clean = self.pool(node, "small"), False
        try:
            session = pool.borrow(deadline)
        except SESSION_ERRORS:
            return None
        if session is None:
            return None
        try:
            answer = action(session)
            clean = True
        except CollectionRefusedError:
            clean = True
            raise
        except (ConnectionLostError, ProtocolError):
            return None
        else:
            return answer
        finally:
            pool.give_back(session, is_clean=clean)
