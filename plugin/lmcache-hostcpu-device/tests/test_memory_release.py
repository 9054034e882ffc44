"""A server keeps no memory of workers that have gone."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmcache_hostcpu.check.processes import CHUNK_TOKENS, Server, WorkerProcess

pytestmark = pytest.mark.timeout(180)

BLOCKS = list(range(1, 17))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server("hostcpu", tmp_path)
    server.await_up()
    yield server
    server.stop()


def mapped(server: Server) -> int:
    """Return how many pieces of workers' caches the server has mapped."""
    return Path(f"/proc/{server.process.pid}/maps").read_text().count("/dev/shm/lmcache_hostcpu_")


def test_the_memory_of_a_worker_is_unmapped_when_it_is_unregistered(server: Server, tmp_path: Path) -> None:
    worker = WorkerProcess(0, 1, "hostcpu", tmp_path)
    try:
        worker.started()
        worker.call("register", url=server.url, mode="lmcache_driven")
        worker.call("fill", blocks=BLOCKS, seed=1)
        assert worker.call("store", tokens=list(range(4 * CHUNK_TOKENS)), blocks=BLOCKS, request="store")
        assert mapped(server) > 0
        worker.call("finish")
        deadline = time.monotonic() + 20
        while mapped(server):
            assert time.monotonic() < deadline, f"{mapped(server)} pieces are still mapped"
            time.sleep(0.05)
    finally:
        worker.stop()
