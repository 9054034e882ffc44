"""Do transfers through a real server give back what was stored, in every mode and with two workers?"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lmcache_hostcpu.check.processes import CHUNK_TOKENS, ProcessEnded, Server, WorkerProcess
from lmcache_hostcpu.check.report import Failed, Row, perform

TITLE = "Transfers"
SHM, PICKLE, DRIVEN = "EngineDrivenContextShm", "EngineDrivenContextPickle", "LMCacheDrivenTransferContext"
RANKS = 2
_BLOCK_TOKENS = 16
_CHUNKS = 3


@dataclass(frozen=True)
class Mode:
    """A way for bytes between worker and server."""

    name: str
    request: str
    context: str
    has_pool: bool = True


MODES = (
    Mode("engine-driven over SHM", "engine_driven", SHM),
    Mode("engine-driven over pickle", "engine_driven", PICKLE, has_pool=False),
    Mode("LMCache-driven", "lmcache_driven", DRIVEN),
)


def check(backend: str, *, has_handles: bool) -> list[Row]:
    """Run every mode that the backend offers."""
    used: set[str] = set()
    modes = [mode for mode in MODES if mode.context != DRIVEN or has_handles]
    with tempfile.TemporaryDirectory(prefix="lmcache-check-") as name, ExitStack() as stack:
        folder = Path(name)
        servers = {pool: Server(backend, folder, shared_memory=pool) for pool in (True, False)}
        for server in servers.values():
            stack.callback(server.stop)
        rows = []
        for mode in modes:
            work = partial(_mode, backend, mode, servers[mode.has_pool], used)
            rows.append(perform(TITLE, f"{mode.name}, {RANKS} workers", work))
    rows.append(perform(TITLE, "shared memory left behind", lambda: _left(used)))
    return rows


def _mode(backend: str, mode: Mode, server: Server, used: set[str]) -> str:
    """Store on both ranks, load into other blocks, compare bytes and see that nothing else was written.

    Adds the files of shared memory that the workers use to ``used``.
    """
    try:
        server.await_up()
        with workers(backend, server.log.parent) as ranks:
            for worker in ranks:
                answer = worker.call("register", url=server.url, mode=mode.request)
                used.update(answer["shared"])
                if answer["context"] != mode.context:
                    raise Failed(f"LMCache uses {answer['context']} instead of {mode.context}")
            tokens = [100_000 * (1 + MODES.index(mode)) + number for number in range(_CHUNKS * CHUNK_TOKENS)]
            count = len(tokens) // _BLOCK_TOKENS
            first, second = list(range(1, count + 1))[::-1], list(range(count + 3, 2 * count + 3))
            for worker in ranks:
                worker.call("fill", blocks=first, seed=5)
            _both(ranks, "store", tokens=tokens, blocks=first, request=f"{mode.name} store")
            found = ranks[0].call("lookup", tokens=tokens, request=f"{mode.name} load", chunks=_CHUNKS)
            if found != _CHUNKS:
                raise Failed(f"the server finds {found} of {_CHUNKS} chunks that were stored")
            _both(ranks, "load", tokens=tokens, blocks=second, request=f"{mode.name} load")
            for worker in ranks:
                wrong = worker.call("compare", blocks=second, seed=5)
                if wrong:
                    raise Failed(f"worker {worker.rank} got {wrong} wrong bytes back")
                if worker.call("compare", blocks=first, seed=5) or worker.call("touched", blocks=first + second):
                    raise Failed(f"a load changed blocks of worker {worker.rank} that it was not asked for")
                worker.call("finish")
    except ProcessEnded as error:
        raise Failed(str(error)) from error
    return f"{_CHUNKS} chunks stored and loaded by each worker, every byte as it was"


@contextmanager
def workers(backend: str | None, folder: Path, ranks: int = RANKS) -> Iterator[list[WorkerProcess]]:
    """Start workers and end them."""
    with ExitStack() as stack:
        running = [WorkerProcess(rank, ranks, backend, folder) for rank in range(ranks)]
        for worker in running:
            stack.callback(worker.stop)
        for worker in running:
            worker.started()
        yield running


def _both(ranks: list[WorkerProcess], command: str, **arguments: object) -> None:
    """Give all workers the same command at the same time; both must succeed."""
    for worker in ranks:
        worker.send(command, **arguments)
    results = [worker.answer() for worker in ranks]
    if not all(results):
        raise Failed(f"{command} was not done on worker {results.index(False)}")


def _left(used: set[str]) -> str:
    left = sorted(path for path in used if Path(path).exists())
    if left:
        raise Failed(f"still there: {', '.join(left)}")
    return f"nothing of {len(used)} file(s)"
