"""Real vLLM with the backend: what it answers from the cache is what it answers without one, in every mode."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from python_processes import SHM

from lmcache_hostcpu.check.processes import CHUNK_TOKENS, Server, environment

pytestmark = pytest.mark.timeout(600)

ENGINE = str(Path(__file__).with_name("tiny_engine.py"))
VARIABLES = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",  # two workers on few cores would only wait for each other
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
}
# Whole chunks of the prompts' 200, 331 and 515 tokens.
CACHED = [192, 320, 512]
assert CHUNK_TOKENS == 64


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    """One server for each mode, so that no mode is served by what another has stored."""
    folder = tmp_path_factory.mktemp("servers")
    with ExitStack() as stack:
        running = {
            name: Server("hostcpu", folder, shared_memory=name != "pickle") for name in ("shm", "pickle", "driven")
        }
        for server in running.values():
            stack.callback(server.stop)
        for server in running.values():
            server.await_up()
        yield running
    assert not [server.pool for server in running.values() if server.pool and (SHM / server.pool).exists()]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("model") / "tiny"


def run(model: Path, ranks: int, *modes: str) -> tuple[list[dict[str, Any]], str]:
    """Return what was answered, and everything that was logged."""
    done = subprocess.run(
        [sys.executable, ENGINE, str(model), str(ranks), *modes],
        env=environment("hostcpu") | VARIABLES | {"PYTHONPATH": os.environ["PYTHONPATH"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    moved = re.findall(r"moved to shared memory /(\S+)", done.stdout)
    assert bool(moved) == any(mode.startswith("lmcache_driven") for mode in modes)
    assert not [name for name in moved if (SHM / name).exists()]
    lines = [line.partition("ANSWERED ")[2] for line in done.stdout.splitlines() if "ANSWERED " in line]
    return [json.loads(line) for line in lines], done.stdout


def assert_used(server: Server) -> str:
    """Return the server's log; it has moved chunks both ways with the backend's operations."""
    log = server.log.read_text()
    assert "Backend hostcpu: native operations bound: lmcache_memcpy_async, multi_layer_block_kv_transfer" in log
    for tokens in CACHED:
        assert f"Retrieved {tokens} tokens" in log
    assert "Stored " in log
    assert "torch baseline" not in log
    return log


def test_answers_from_the_cache_are_those_without_it(servers: dict[str, Server], model: Path) -> None:
    ports = {name: server.port for name, server in servers.items()}
    modes = (f"engine_driven@{ports['shm']}", f"engine_driven@{ports['pickle']}", f"lmcache_driven@{ports['driven']}")
    rounds, log = run(model, 1, "none", *modes)
    (first, second), cached = rounds[:2], rounds[2:]
    assert first["answers"] == second["answers"]
    assert len({tuple(answer) for answer in first["answers"]}) == len(CACHED)
    assert [answered["mode"] for answered in cached] == [mode for mode in modes for _ in range(2)]
    for computed, retrieved in zip(cached[::2], cached[1::2], strict=True):
        assert computed["cached"] == [0, 0, 0]
        assert retrieved["cached"] == CACHED
        assert computed["answers"] == retrieved["answers"] == first["answers"], retrieved["mode"]

    assert log.count("Backend hostcpu: native operations bound") >= len(modes)
    for said in ("mode=SHM", "mode=pickle", "KV cache memory of", "mode=lmcache_driven"):
        assert said in log
    for server in servers.values():
        assert_used(server)


def test_two_workers_share_a_model(servers: dict[str, Server], model: Path) -> None:
    (computed, retrieved), log = run(model, 2, f"lmcache_driven@{servers['driven'].port}")
    assert computed["cached"] == [0, 0, 0]
    assert retrieved["cached"] == CACHED
    assert computed["answers"] == retrieved["answers"]
    assert log.count("Creating transfer context (device_type=cpu, mode=lmcache_driven)") == 2
    assert "Registered KV cache for GPU ID" in assert_used(servers["driven"])
