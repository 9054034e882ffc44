"""Workers and servers that are killed in the middle of a transfer: recovery, and never a wrong byte."""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from python_processes import SHM

from lmcache_hostcpu.check.processes import CHUNK_TOKENS, ProcessEnded, Server, WorkerProcess

pytestmark = pytest.mark.timeout(300)

STALLING = str(Path(__file__).with_name("stalling.py"))
CHUNKS = 4
FIRST, SECOND = list(range(1, 17)), list(range(40, 24, -1))
PATIENCE_SECONDS = 4.0
MODES = ("engine_driven", "lmcache_driven")
_numbers = itertools.count(1)


class Brake:
    """Stops the transfers of a process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def set(self, direction: str) -> None:
        for name in ("stopped", "go", "leave"):
            (self.folder / name).unlink(missing_ok=True)
        (self.folder / f"stop-{direction}").touch()

    def await_stop(self) -> None:
        deadline = time.monotonic() + 20
        while not (self.folder / "stopped").exists():
            assert time.monotonic() < deadline, "no transfer was stopped"
            time.sleep(0.01)

    def release(self) -> None:
        (self.folder / "go").touch()

    def fail(self) -> None:
        (self.folder / "leave").touch()


class Place:
    """A server, as often as it has to be started, and workers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server_brake, self.worker_brake = Brake(folder / "server"), Brake(folder / "worker")
        self.server: Server | None = None
        self.workers: list[WorkerProcess] = []
        self.caches: set[str] = set()

    def running(self) -> Server:
        """Return the server; starts it, at the port that it had before, if it does not run."""
        if self.server is None or self.server.process.poll() is not None:
            program = (STALLING, str(self.server_brake.folder), "lmcache.cli.main")
            port = None if self.server is None else self.server.port
            self.server = Server("hostcpu", self.folder, port=port, program=program)
        self.server.await_up()
        return self.server

    def worker(self, mode: str) -> WorkerProcess:
        """Start a worker and register it."""
        program = (STALLING, str(self.worker_brake.folder), "lmcache_hostcpu.check.worker")
        worker = WorkerProcess(0, 1, "hostcpu", self.folder, seconds=PATIENCE_SECONDS, program=program)
        self.workers.append(worker)
        worker.started()
        files = worker.call("register", url=self.running().url, mode=mode)["shared"]
        self.caches.update(path for path in files if not path.startswith(str(SHM / "lmcache_l1_pool")))
        return worker


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    place = Place(tmp_path_factory.mktemp("faults"))
    yield place
    if place.server is not None:
        place.server.stop()
        assert not (SHM / place.server.pool).exists()


@pytest.fixture
def place(house: Place) -> Iterator[Place]:
    house.running()
    yield house
    for brake in (house.server_brake, house.worker_brake):
        brake.release()
    for worker in house.workers:
        worker.kill()
    house.workers.clear()


def new_tokens() -> list[int]:
    return [next(_numbers) * 1000 + number for number in range(CHUNKS * CHUNK_TOKENS)]


def brake_of(place: Place, mode: str) -> Brake:
    """Who moves the bytes in this mode."""
    return place.worker_brake if mode == "engine_driven" else place.server_brake


def stored(worker: WorkerProcess, tokens: list[int], seed: int) -> None:
    worker.call("fill", blocks=FIRST, seed=seed)
    assert worker.call("store", tokens=tokens, blocks=FIRST, request=f"store-{next(_numbers)}")


def loaded(worker: WorkerProcess, tokens: list[int], seed: int, blocks: list[int] = SECOND) -> None:
    request = f"load-{next(_numbers)}"
    assert worker.call("lookup", tokens=tokens, request=request, chunks=CHUNKS) == CHUNKS
    assert worker.call("load", tokens=tokens, blocks=blocks, request=request)
    assert worker.call("compare", blocks=blocks, seed=seed) == 0


def stop_in_load(place: Place, mode: str, worker: WorkerProcess, tokens: list[int]) -> None:
    """Let a worker load, and return while the load stands still halfway."""
    request = f"load-{next(_numbers)}"
    worker.call("lookup", tokens=tokens, request=request, chunks=CHUNKS)
    brake_of(place, mode).set("H2D")
    worker.send("load", tokens=tokens, blocks=SECOND, request=request)
    brake_of(place, mode).await_stop()


def await_gone(place: Place) -> None:
    """Wait until nothing is left of the caches of workers that were killed."""
    deadline = time.monotonic() + 10
    while left := [path for path in place.caches if Path(path).exists()]:
        assert time.monotonic() < deadline, left
        time.sleep(0.01)
    place.caches.clear()


@pytest.mark.parametrize("mode", MODES)
def test_a_worker_is_killed_while_it_stores(place: Place, mode: str) -> None:
    worker, tokens = place.worker(mode), new_tokens()
    worker.call("fill", blocks=FIRST, seed=1)
    brake_of(place, mode).set("D2H")
    worker.send("store", tokens=tokens, blocks=FIRST, request=f"store-{next(_numbers)}")
    brake_of(place, mode).await_stop()
    worker.kill()
    await_gone(place)
    brake_of(place, mode).release()

    another = place.worker(mode)
    found = another.call("lookup", tokens=tokens, request=f"after-{next(_numbers)}", chunks=CHUNKS)
    if mode == "engine_driven":
        assert found == 0  # half of it was written, and nobody is left who could finish it
    elif found:
        # The server had a complete cache before it, whose owner could not change it any more.
        loaded(another, tokens, seed=1)
    other_tokens = new_tokens()
    stored(another, other_tokens, seed=2)
    loaded(another, other_tokens, seed=2)


def test_a_worker_leaves_in_order_while_it_stores(place: Place) -> None:
    """As one that gets SIGTERM: it unregisters, and LMCache by itself would take the store for complete."""
    worker, tokens = place.worker("engine_driven"), new_tokens()
    worker.call("fill", blocks=FIRST, seed=6)
    place.worker_brake.set("D2H")
    worker.send("store", tokens=tokens, blocks=FIRST, request=f"store-{next(_numbers)}")
    place.worker_brake.await_stop()
    place.worker_brake.fail()
    with pytest.raises(RuntimeError, match="the worker leaves"):
        worker.answer()
    worker.call("finish")

    another = place.worker("engine_driven")
    assert another.call("lookup", tokens=tokens, request=f"after-{next(_numbers)}", chunks=CHUNKS) == 0
    assert "4 unfinished chunk(s) dropped" in place.running().log.read_text()


@pytest.mark.parametrize("mode", MODES)
def test_a_worker_is_killed_while_it_loads(place: Place, mode: str) -> None:
    worker, tokens = place.worker(mode), new_tokens()
    stored(worker, tokens, seed=3)
    stop_in_load(place, mode, worker, tokens)
    worker.kill()
    await_gone(place)
    brake_of(place, mode).release()
    loaded(place.worker(mode), tokens, seed=3)


@pytest.mark.parametrize("mode", MODES)
def test_the_server_is_restarted_while_a_worker_stores(place: Place, mode: str) -> None:
    worker, tokens = place.worker(mode), new_tokens()
    worker.call("fill", blocks=FIRST, seed=4)
    brake_of(place, mode).set("D2H")
    worker.send("store", tokens=tokens, blocks=FIRST, request=f"store-{next(_numbers)}")
    brake_of(place, mode).await_stop()
    assert place.server is not None
    place.server.kill()
    url = place.running().url
    brake_of(place, mode).release()
    try:
        assert worker.answer() is False
    except RuntimeError as error:
        assert "Timeout" in str(error)  # noqa: PT017  # either is an answer that vLLM takes for a store that failed

    worker.call("register", url=url, mode=mode)
    assert worker.call("lookup", tokens=tokens, request=f"after-{next(_numbers)}", chunks=CHUNKS) == 0
    stored(worker, tokens, seed=4)
    loaded(worker, tokens, seed=4)


@pytest.mark.parametrize("mode", MODES)
def test_the_server_is_restarted_while_a_worker_loads(place: Place, mode: str) -> None:
    worker, tokens = place.worker(mode), new_tokens()
    stored(worker, tokens, seed=5)
    stop_in_load(place, mode, worker, tokens)
    assert place.server is not None
    place.server.kill()
    url = place.running().url
    brake_of(place, mode).release()
    try:
        if worker.answer():
            assert worker.call("compare", blocks=SECOND, seed=5) == 0
    except RuntimeError as error:
        assert "Timeout" in str(error)  # noqa: PT017  # vLLM computes the blocks anew

    worker.call("register", url=url, mode=mode)
    stored(worker, tokens, seed=5)
    loaded(worker, tokens, seed=5)


def test_whoever_waits_for_a_killed_worker_is_told(place: Place) -> None:
    worker = place.worker("lmcache_driven")
    assert any(Path(path).exists() for path in place.caches)
    worker.process.kill()
    with pytest.raises(ProcessEnded, match="worker 0 has ended"):
        worker.call("compare", blocks=FIRST, seed=0)
    await_gone(place)
