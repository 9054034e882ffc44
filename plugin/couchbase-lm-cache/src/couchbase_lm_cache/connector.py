"""The in-process connector: LMCache's ``RemoteConnector`` on top of Couchbase.

For compatibility: LMCache's server (:mod:`couchbase_lm_cache.l2_adapter`) is the faster way and the one that
is not affected by the known issue of in-process mode. A document is LMCache's ``RemoteMetadata`` header
followed by the chunk's bytes (the bytes alone without ``save_chunk_meta``), at
``<key_prefix><CacheEngineKey.to_string()>``.

LMCache waits for some calls without a limit of its own, so every call ends by a deadline here. Its memory
objects are touched on the event loop only, between two awaits: a call that is cancelled holds none.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.metadata
import struct
import time
from typing import TYPE_CHECKING, Any, TypeVar

from lmcache.logging import init_logger
from lmcache.v1.protocol import RemoteMetadata
from lmcache.v1.storage_backend.connector.base_connector import RemoteConnector

from couchbase_lm_cache.errors import ConnectError, SettingsError
from couchbase_lm_cache.keys import document_key
from couchbase_lm_cache.object_client import MAX_OBJECT_BYTES, Call, ObjectClient
from couchbase_lm_cache.settings import CouchbaseLMCacheConfig
from couchbase_lm_cache.sharding import layout_hash
from couchbase_lm_cache.transport import PROBE_KEYS, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmcache.utils import CacheEngineKey
    from lmcache.v1.config import LMCacheEngineConfig
    from lmcache.v1.memory_management import MemoryObj

logger = init_logger(__name__)

Result = TypeVar("Result")

_PLUGIN_KEY = "remote_storage_plugin."
_CHUNKS_AT_ONCE = 4
"""Each chunk under way has one private copy of its bytes; this bounds them."""
_SHARE_OF_BLOCKING_TIMEOUT = 0.9
"""Gets end before LMCache gives them up: a result that comes as it does would be lost, and its memory with it."""
_PING_FAILED = 1


class CouchbaseConnector(RemoteConnector):  # type: ignore[misc]  # LMCache is not typed
    """Chunks of LMCache's in-process mode in Couchbase.

    Args:
        loop: the event loop that LMCache runs calls on.
        local_cpu_backend: gives memory and the engine's metadata; a stub without metadata in the scheduler.
        config: LMCache's configuration; ``extra_config`` holds the settings.

    Raises:
        SettingsError: a setting is refused, or it is not clear which plugin's settings apply.
        ConnectError: ``startup`` is strict and Couchbase could not be used within ``connect_timeout_seconds``.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, local_cpu_backend: Any, config: LMCacheEngineConfig | None = None
    ) -> None:
        del loop  # calls come on it; nothing has to be scheduled on it from outside
        config = config if config is not None else local_cpu_backend.config
        extra_config = config.extra_config or {}
        name = plugin_name(list(config.remote_storage_plugins or []), extra_config)
        settings = self._settings = CouchbaseLMCacheConfig.from_extra_config(extra_config, name)
        self._memory = local_cpu_backend
        metadata = getattr(local_cpu_backend, "metadata", None)
        self._layout = ""
        if metadata is not None:
            super().__init__(config, metadata)
            # One configuration, one layout: what was stored under another is not taken for this.
            shapes = [list(shape) for shape in self.meta_shapes]
            dtypes = [*map(str, self.meta_dtypes), str(config.remote_serde), f"header={bool(self.save_chunk_meta)}"]
            self._layout = layout_hash(shapes, dtypes)
        self._can_load = metadata is not None
        blocking = float(config.blocking_timeout_secs) * _SHARE_OF_BLOCKING_TIMEOUT
        self._load_seconds = min(settings.task_deadline_seconds, blocking)
        self._loads = asyncio.Semaphore(_CHUNKS_AT_ONCE)
        self._stores = asyncio.Semaphore(_CHUNKS_AT_ONCE)
        warn_of_known_issue()
        try:
            self._client = ObjectClient(settings)
        except ConnectError as error:
            # Expected and told in full: a trace would only hide the cause.
            logger.warning(
                "The Couchbase connector is off, prompts are recomputed: %s (startup: degraded would let it connect "
                "later by itself)",
                error,
            )
            raise
        logger.info("Couchbase connector ready: %s", settings.redacted())

    async def exists(self, key: CacheEngineKey) -> bool:
        """Say whether the chunk is stored; False when nobody knows in time."""
        return (await self._result(self._look_up([key])))[0]

    def exists_sync(self, key: CacheEngineKey) -> bool:
        """Say the same, blocking."""
        return self._look_up([key]).future.result()[0]

    def support_batched_contains(self) -> bool:
        """Many chunks are looked up at once."""
        return True

    def batched_contains(self, keys: list[CacheEngineKey]) -> int:
        """Return how many chunks from the first on are stored, blocking."""
        return _prefix(self._look_up(keys).future.result())

    async def batched_async_contains(self, lookup_id: str, keys: list[CacheEngineKey], pin: bool = False) -> int:
        """Return how many chunks from the first on are stored. Couchbase has no locks: ``pin`` is ignored."""
        del lookup_id, pin
        return _prefix(await self._result(self._look_up(keys)))

    async def get(self, key: CacheEngineKey) -> MemoryObj | None:
        """Load a chunk; None when it is missing, unusable or not there in time."""
        return await self._get(key, time.monotonic() + self._load_seconds)

    def support_batched_get(self) -> bool:
        """Many chunks are loaded at once."""
        return True

    async def batched_get(self, keys: list[CacheEngineKey]) -> list[MemoryObj | None]:
        """Load chunks, all by one deadline."""
        deadline = time.monotonic() + self._load_seconds
        gets = [asyncio.ensure_future(self._get(key, deadline)) for key in keys]
        try:
            return list(await asyncio.gather(*gets))
        except BaseException:  # a cancelled batch must give back the memory of the chunks it has
            for get in gets:
                get.cancel()
            for loaded in await asyncio.gather(*gets, return_exceptions=True):
                if loaded is not None and not isinstance(loaded, BaseException):
                    loaded.ref_count_down()
            raise

    async def batched_get_non_blocking(self, lookup_id: str, keys: list[CacheEngineKey]) -> list[MemoryObj]:
        """Load chunks; only those before the first miss are returned, the memory of the others is given back."""
        del lookup_id
        loaded = await self.batched_get(keys)
        length = _prefix([memory is not None for memory in loaded])
        for memory in loaded[length:]:
            if memory is not None:
                memory.ref_count_down()
        return [memory for memory in loaded[:length] if memory is not None]

    async def put(self, key: CacheEngineKey, memory_obj: MemoryObj) -> None:
        """Store a chunk. LMCache gives the memory back afterwards, whatever happens.

        Raises:
            ConnectError: not all of it could be stored in time.
        """
        await self._put(key, memory_obj, time.monotonic() + self._settings.store_deadline_seconds)

    def support_batched_put(self) -> bool:
        """Many chunks are stored at once."""
        return True

    async def batched_put(self, keys: list[CacheEngineKey], memory_objs: list[MemoryObj]) -> None:
        """Store chunks, all by one deadline.

        Raises:
            ConnectError: some could not be stored; the others are.
        """
        deadline = time.monotonic() + self._settings.store_deadline_seconds
        puts = [self._put(key, memory, deadline) for key, memory in zip(keys, memory_objs, strict=True)]
        failures = [one for one in await asyncio.gather(*puts, return_exceptions=True) if one is not None]
        if failures:
            raise ConnectError(f"{len(failures)} of {len(keys)} chunks were not stored: {failures[0]}")

    def remove_sync(self, key: CacheEngineKey) -> bool:
        """Remove a chunk; False when there was none or Couchbase did not answer."""
        return self._client.remove(self._document(key))

    def support_ping(self) -> bool:
        """LMCache's health check may ping."""
        return True

    async def ping(self) -> int:
        """Return 0 when Couchbase answers."""
        try:
            transport = self._client.transport()
        except ConnectError:
            return _PING_FAILED
        outcomes = await asyncio.to_thread(transport.exists, PROBE_KEYS[:1], self._client.call_timeout_seconds)
        return 0 if outcomes[0] in (Outcome.OK, Outcome.MISSING) else _PING_FAILED

    async def close(self) -> None:
        """End what is under way and disconnect, within a bounded time. Idempotent."""
        await asyncio.to_thread(self._client.close)

    def __repr__(self) -> str:
        """Name bucket and collection, no secret."""
        place = (self._settings.bucket_name, self._settings.scope_name, self._settings.collection_name)
        return f"<CouchbaseConnector {'.'.join(place)}>"

    async def _get(self, key: CacheEngineKey, deadline: float) -> MemoryObj | None:
        if not self._can_load:
            return None
        async with self._loads:
            remaining_seconds = deadline - time.monotonic()
            if remaining_seconds <= 0:
                return None
            call = self._client.load(self._document(key), self._layout, MAX_OBJECT_BYTES, remaining_seconds)
            loaded = await self._result(call)
            return None if loaded.content is None else self._fill(key, memoryview(loaded.content))

    def _fill(self, key: CacheEngineKey, document: memoryview) -> MemoryObj | None:
        """Copy a document into new memory of LMCache; nothing else runs on the loop meanwhile."""
        shapes, dtypes, fmt, body = self.meta_shapes, self.meta_dtypes, self.meta_fmt, document
        if self.save_chunk_meta:
            try:
                header = RemoteMetadata.deserialize(document[: self.remote_metadata_bytes])
            except (struct.error, ValueError, KeyError):
                logger.warning("The document of chunk %s has no valid header: it is recomputed", key.to_string())
                return None
            shapes, dtypes, fmt = header.shapes, header.dtypes, header.fmt
            body = document[self.remote_metadata_bytes :]
            if header.length != len(body):
                logger.warning("The document of chunk %s has another length than its header says", key.to_string())
                return None
        # Waiting for memory here would hold up the loop, and with it the stores that would free some.
        memory = self._memory.allocate(shapes, dtypes, fmt, busy_loop=False)
        if memory is None:
            logger.warning("LMCache has no memory for a chunk from Couchbase: it is recomputed")
            return None
        try:
            if not self.save_chunk_meta:
                memory = self.reshape_partial_chunk(memory, len(body))
            memory.byte_array.cast("B")[:] = body
        except ValueError as error:
            memory.ref_count_down()
            logger.warning("Chunk %s from Couchbase does not fit its memory: %s", key.to_string(), error)
            return None
        return memory

    async def _put(self, key: CacheEngineKey, memory: MemoryObj, deadline: float) -> None:
        async with self._stores:
            remaining_seconds = deadline - time.monotonic()
            if remaining_seconds <= 0 or not self._client.is_ready:
                raise ConnectError(f"chunk {key.to_string()} was not stored in Couchbase: {self._client.reason}")
            document = self._encode(memory)
            call = self._client.store(self._document(key), document, self._layout, remaining_seconds)
            del document
            if not await self._result(call):
                raise ConnectError(f"chunk {key.to_string()} was not stored in Couchbase: {self._client.reason}")

    def _encode(self, memory: MemoryObj) -> bytearray:
        body = memory.byte_array.cast("B")
        document = bytearray()
        if self.save_chunk_meta:
            header = RemoteMetadata(len(body), memory.get_shapes(), memory.get_dtypes(), memory.get_memory_format())
            document += header.serialize()
        document += body
        return document

    def _look_up(self, keys: list[CacheEngineKey]) -> Call[list[bool]]:
        return self._client.look_up([self._document(key) for key in keys], self._settings.task_deadline_seconds)

    async def _result(self, call: Call[Result]) -> Result:
        try:
            return await asyncio.wrap_future(call.future)
        except asyncio.CancelledError:
            call.abandon()
            raise

    def _document(self, key: CacheEngineKey) -> str:
        return document_key(self._settings.key_prefix, key.to_string())

    # Last: below it, `list` in annotations would mean this method.
    async def list(self) -> list[str]:
        """Refused: the keys of a shared cache are too many for one list.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("in-process mode cannot list keys in Couchbase: the collection is shared and large")


def plugin_name(names: list[str], extra_config: Mapping[str, Any]) -> str:
    """Find the plugin whose settings are ours: LMCache does not tell the connector its name.

    Raises:
        SettingsError: no plugin, or more than one, names this class.
    """
    ours = [name for name in names if _class_of(name, extra_config) == (__name__, CouchbaseConnector.__name__)]
    if len(ours) != 1:
        raise SettingsError(
            f"{len(ours)} of remote_storage_plugins {names} have module_path {__name__} and class_name "
            f"{CouchbaseConnector.__name__}: there must be exactly one, so that it is clear whose settings apply"
        )
    return ours[0]


def _class_of(name: str, extra_config: Mapping[str, Any]) -> tuple[object, object]:
    module_path, class_name = (
        extra_config.get(f"{_PLUGIN_KEY}{name}.{part}") for part in ("module_path", "class_name")
    )
    return module_path, class_name


def _prefix(found: list[bool]) -> int:
    return found.index(False) if False in found else len(found)


@functools.cache
def warn_of_known_issue() -> bool:
    """Warn, once per process, of versions whose in-process mode loads wrongly from every backend."""
    affected = _version("vllm") >= (0, 26) and _version("lmcache") <= (0, 5, 6)
    if affected:
        logger.warning(
            "Known issue: with vLLM 0.26 and later, the in-process mode of LMCache 0.5.6 can load wrong KV caches "
            "from every storage backend, so answers may be wrong (github.com/LMCache/LMCache/issues/4463). "
            "Use LMCache's server with the Couchbase L2 adapter instead"
        )
    return affected


def _version(package: str) -> tuple[int, ...]:
    """Return the numbers a version begins with; empty, less than any, when the package is absent."""
    try:
        text = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ()
    numbers = []
    for part in text.split("+")[0].split(".")[:3]:
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)
