"""A serving engine's worker without the engine: registers a cache, stores and loads blocks, compares bytes.

It runs as a process of its own, as workers do. Each line of standard input is a command in JSON, each line that it
writes an answer; LMCache's log goes to standard error.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from typing import Any

_LAYERS, _BLOCKS, _BLOCK_TOKENS, _HEADS, _HEAD_SIZE = 4, 64, 16, 2, 64
_MODEL = "device-check"
_HINTS = {"kv_layout": "NHD"}
_ADMISSION_SECONDS = 3.0


class Worker:
    """One rank."""

    def __init__(self, rank: int, ranks: int, seconds: float) -> None:
        self.rank, self.ranks, self.seconds = rank, ranks, seconds
        self._instance = uuid.uuid4().int >> 65  # as LMCache's adapter for vLLM does
        self._context: Any = None
        self._client: Any = None
        self._caches: dict[str, Any] = {}
        self._chunk_tokens = 0

    def register(self, url: str, mode: str) -> dict[str, Any]:
        """Register the cache, empty at first, with a server; tells what LMCache has made of the mode.

        Again with a server that was started anew, as LMCache's recovery does: with the same tensors.
        """
        from lmcache.utils import EngineType
        from lmcache.v1.multiprocess.group_view import EngineGroupInfo
        from lmcache.v1.multiprocess.transfer_context import create_transfer_context
        from lmcache.v1.multiprocess.transport.factory import RequestClientFactory
        from lmcache.v1.platform import current_device_spec

        if self._client is None:
            self._client = RequestClientFactory.create(url)
            self._chunk_tokens = int(self._client.get_chunk_size().result(timeout=self.seconds))
            self._caches = _empty_caches(current_device_spec.device_type)
        self._context = create_transfer_context(
            self._caches, instance_id=self._instance, req_client=self._client, mode=mode
        )
        group = EngineGroupInfo(engine_group_id=0, layer_indices=tuple(range(_LAYERS)), tokens_per_block=_BLOCK_TOKENS)
        self._context.register(
            self._caches,
            _MODEL,
            self.ranks,
            self._blocks_per_chunk,
            self.seconds,
            layout_hints=_HINTS,
            engine_group_infos=[group],
            engine_type=EngineType.VLLM,
        )
        inner = getattr(self._context, "engine_driven_context", self._context)
        return {"context": type(inner).__name__, "shared": _shared_files()}

    @property
    def _blocks_per_chunk(self) -> int:
        return self._chunk_tokens // _BLOCK_TOKENS

    def fill(self, blocks: list[int], seed: int) -> None:
        """Write bytes into blocks that only this rank and seed have."""
        for number, tensor in enumerate(self._caches.values()):
            tensor[:, blocks] = self._content(tensor, len(blocks), seed, number)

    def store(self, tokens: list[int], blocks: list[int], request: str) -> bool:
        """Store the blocks as the cache of ``tokens``; tells whether the server took them."""
        event = self._context.create_recorded_event()
        key = self._key(tokens, request, self.rank)
        future = self._context.submit_store(request, key, self._caches, [blocks], event, self._blocks_per_chunk)
        return bool(future.result(timeout=self.seconds))

    def lookup(self, tokens: list[int], request: str, chunks: int) -> int:
        """Return how many chunks of ``tokens`` the server has for all ranks; locks them for a load by each.

        A server admits what was stored a moment after it has answered the store, so fewer than ``chunks`` are asked
        for again for a while.
        """
        key = self._key(tokens, request, None)
        deadline = time.monotonic() + _ADMISSION_SECONDS
        while True:
            self._client.lookup(key, self.ranks).result(timeout=self.seconds)
            found = self._client.wait_prefetch_status(request, self.seconds).result(timeout=self.seconds) or 0
            if found >= chunks or time.monotonic() > deadline:
                return int(found)
            self._client.free_lookup_locks(key, self.ranks).result(timeout=self.seconds)
            self._client.end_session(request).result(timeout=self.seconds)
            time.sleep(0.01)

    def load(self, tokens: list[int], blocks: list[int], request: str, skip_tokens: int = 0) -> bool:
        """Load the cache of ``tokens`` into blocks; tells whether the server had it."""
        event = self._context.create_recorded_event()
        key = self._key(tokens, request, self.rank)
        future = self._context.submit_retrieve(
            request, key, self._caches, [blocks], event, self._blocks_per_chunk, skip_first_n_tokens=skip_tokens
        )
        return bool(future.result(timeout=self.seconds))

    def compare(self, blocks: list[int], seed: int) -> int:
        """Return how many bytes of the blocks differ from what :meth:`fill` writes."""
        import torch

        wrong = 0
        for number, tensor in enumerate(self._caches.values()):
            expected = self._content(tensor, len(blocks), seed, number)
            actual = tensor[:, blocks]
            wrong += int((actual.view(torch.uint8) != expected.view(torch.uint8)).sum())
        return wrong

    def touched(self, blocks: list[int]) -> int:
        """Return how many blocks other than these hold anything."""
        others = [block for block in range(_BLOCKS) if block not in set(blocks)]
        return sum(int(tensor[:, others].any()) for tensor in self._caches.values())

    def finish(self) -> None:
        """Unregister and give everything back."""
        if self._context is not None:
            future = self._context.unregister()
            if future is not None:
                future.result(timeout=self.seconds)
            self._context.close()
            self._caches = {}
            self._client.close()
            self._context = None

    def _content(self, like: Any, blocks: int, seed: int, layer: int) -> Any:
        import torch

        generator = torch.Generator().manual_seed(1_000_003 * seed + 1009 * self.rank + layer)
        shape = (2, blocks, _BLOCK_TOKENS, _HEADS, _HEAD_SIZE)
        size = torch.Size(shape).numel() * 2
        random = torch.randint(0, 256, (size,), dtype=torch.uint8, generator=generator)
        return random.view(torch.bfloat16).view(shape).to(like.device)

    def _key(self, tokens: list[int], request: str, rank: int | None) -> Any:
        from lmcache.v1.multiprocess.custom_types import IPCCacheServerKey

        return IPCCacheServerKey(
            model_name=_MODEL,
            world_size=self.ranks,
            worker_id=rank,
            token_ids=tuple(tokens),
            start=0,
            end=len(tokens),
            request_id=request,
            num_kv_readers=1,
        )


def _shared_files() -> list[str]:
    """Return the files of shared memory that this process maps."""
    with open("/proc/self/maps") as maps:  # noqa: PTH123  # not a file in a folder
        paths = {line.split(maxsplit=5)[-1].strip() for line in maps}
    return sorted(path for path in paths if path.startswith("/dev/shm/") and "deleted" not in path)  # noqa: S108


def _empty_caches(device: str) -> dict[str, Any]:
    import torch

    shape = (2, _BLOCKS, _BLOCK_TOKENS, _HEADS, _HEAD_SIZE)
    return {f"layer.{number}": torch.zeros(shape, dtype=torch.bfloat16, device=device) for number in range(_LAYERS)}


def main() -> None:
    """Serve commands until the input ends."""
    worker: Worker | None = None
    answers = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        command = json.loads(line)
        name, arguments = command["do"], command.get("with", {})
        try:
            if name == "start":
                worker = Worker(**arguments)
                result = None
            else:
                result = getattr(worker, name)(**arguments)
            answer: dict[str, Any] = {"result": result}
        except Exception as error:  # noqa: BLE001  # whatever happens belongs to the one who asked
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
