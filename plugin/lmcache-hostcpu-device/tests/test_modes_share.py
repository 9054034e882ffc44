"""What a worker of one transfer mode stored, a worker of another one loads: the bytes of an object are the same."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmcache_hostcpu.check.processes import CHUNK_TOKENS, Server
from lmcache_hostcpu.check.transfers import workers

pytestmark = pytest.mark.timeout(180)

CHUNKS = 4
FIRST, SECOND = list(range(1, 17)), list(range(40, 24, -1))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server("hostcpu", tmp_path_factory.mktemp("shared"))
    server.await_up()
    yield server
    server.stop()


def test_each_mode_reads_what_the_other_wrote(server: Server, tmp_path: Path) -> None:
    modes = ("engine_driven", "lmcache_driven")
    with workers("hostcpu", tmp_path, ranks=1) as ours, workers("hostcpu", tmp_path, ranks=1) as theirs:
        running = dict(zip(modes, (*ours, *theirs), strict=True))
        for mode, worker in running.items():
            worker.call("register", url=server.url, mode=mode)
        for number, (writer, reader) in enumerate(itertools.permutations(modes), start=1):
            tokens = [1000 * number + token for token in range(CHUNKS * CHUNK_TOKENS)]
            running[writer].call("fill", blocks=FIRST, seed=number)
            assert running[writer].call("store", tokens=tokens, blocks=FIRST, request=f"store-{number}")
            request = f"load-{number}"
            assert running[reader].call("lookup", tokens=tokens, request=request, chunks=CHUNKS) == CHUNKS
            assert running[reader].call("load", tokens=tokens, blocks=SECOND, request=request)
            assert running[reader].call("compare", blocks=SECOND, seed=number) == 0, (writer, reader)
