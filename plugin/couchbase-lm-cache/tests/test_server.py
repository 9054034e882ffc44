"""``lmcache server`` and LMCache's own benchmarks, as processes, with the adapter named on the command line."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import PASSWORD, USERNAME, Place

# Every process imports torch: seconds on an idle machine, minutes on a busy one.
pytestmark = [pytest.mark.engine_cli, pytest.mark.timeout(400)]

LMCACHE = Path(sys.executable).with_name("lmcache")
SOURCES = Path(__file__).parents[1] / "src"
SHAPE = "(2,256,16,4,64):float16:4"
CHUNKS_PER_REQUEST = 8  # 2048 tokens of 256
OBJECT_BYTES = 2 * 4 * 256 * 4 * 64 * 2  # keys and values, layers, tokens, heads, their size, bytes


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment() -> dict[str, str]:
    ours = {"PYTHONPATH": str(SOURCES), "LMCACHE_TRACK_USAGE": "false", "LMCACHE_DISABLE_BANNER": "1"}
    return os.environ | ours


def adapter_json(params: dict[str, Any]) -> str:
    return json.dumps(
        {
            "type": "plugin",
            "module_path": "couchbase_lm_cache.l2_adapter",
            "class_name": "CouchbaseL2Adapter",
            "adapter_params": params,
        }
    )


class Server:
    """A running ``lmcache server``."""

    def __init__(self, params: dict[str, Any], folder: Path, variables: dict[str, str] | None = None) -> None:
        self.rpc_port, self.http_port = free_port(), free_port()
        self.log = folder / f"server-{self.rpc_port}.log"
        command = [
            str(LMCACHE),
            *("server", "--port", str(self.rpc_port), "--http-port", str(self.http_port)),
            *("--chunk-size", "256", "--l1-size-gb", "0.25", "--no-l1-use-lazy", "--eviction-policy", "LRU"),
            *("--supported-transfer-mode", "auto", "--shm-name", f"couchbase-lm-test-{self.rpc_port}"),
            *("--l2-adapter", adapter_json(params)),
        ]
        with self.log.open("wb") as log:
            variables = environment() | (variables or {})
            self.process = subprocess.Popen(command, env=variables, stdout=log, stderr=subprocess.STDOUT)

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=10) as answer:
            return str(answer.read().decode())

    def await_up(self) -> None:
        deadline = time.monotonic() + 180
        while True:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            try:
                self.get("/healthcheck")
            except OSError:
                time.sleep(0.1)
            else:
                return

    def bench(self, requests: int) -> dict[str, Any]:
        output = self.log.with_suffix(".json")
        subprocess.run(
            [
                str(LMCACHE),
                *("bench", "server", "--mode", "cpu", "--transfer-mode", "engine_driven"),
                *("--rpc-url", f"tcp://localhost:{self.rpc_port}", "--url", f"http://127.0.0.1:{self.http_port}"),
                *("--num-tokens", "2048", "--kvcache-shape-spec", SHAPE, "--interval", "0.1"),
                *("--start", "0", "--end", str(requests), "--format", "json", "--output", str(output), "-q"),
            ],
            env=environment(),
            check=True,
            capture_output=True,
            timeout=180,
        )
        metrics: dict[str, Any] = json.loads(output.read_text())["metrics"]
        return metrics

    def metric(self, name: str) -> float:
        return sum(float(value) for value in re.findall(rf"^{name}{{.*}} (\S+)$", self.get("/metrics"), re.MULTILINE))

    def stop(self) -> None:
        """End it as Kubernetes does. Its HTTP library ends in order, then raises the signal again."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) in (0, -signal.SIGTERM)
        said = self.log.read_text()
        assert "Application shutdown complete" in said
        assert "Traceback" not in said


@contextmanager
def server(params: dict[str, Any], folder: Path, variables: dict[str, str] | None = None) -> Iterator[Server]:
    running = Server(params, folder, variables)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait(10)


def test_two_servers_in_turn_answer_from_couchbase_and_stop_cleanly(place: Place, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    params = {name: value for name, value in place.params.items() if name != "password"}
    params |= {"password_file": str(password), "key_prefix": "cli:", "require_checksum": True}
    # Both come up at once, which takes the longest; the second one is asked when the first is gone.
    with server(params, tmp_path) as one, server(params, tmp_path) as other:
        one.await_up()
        result = one.bench(2)["results"]
        assert (result["checksum_ok"], result["checksum_fail"]) == (2, 0)
        status = json.loads(one.get("/status"))
        (adapter,) = status["storage_manager"]["l2_adapters"]
        assert status["is_healthy"] is True
        assert adapter["counts"]["objects_stored"] == 2 * CHUNKS_PER_REQUEST
        assert [(each["object_group"], each["bytes"]) for each in adapter["objects"]] == [(0, OBJECT_BYTES)]
        assert one.metric("couchbase_lm_cache_object_bytes") == OBJECT_BYTES
        assert PASSWORD not in one.get("/config") + one.get("/status") + one.get("/env")
        one.stop()
        assert PASSWORD not in one.log.read_text()
        assert len(place.documents()) == 2 * CHUNKS_PER_REQUEST * 2  # one shard and one manifest each
        assert all(name.startswith("cli:test-model@0x") for name in place.documents())
        other.await_up()
        other.bench(2)
        assert other.metric("lmcache_mp_lookup_hit_l2_tokens_total") >= 2 * 2048
        loads = other.metric("couchbase_lm_cache_load_seconds_count")
        assert loads >= 2  # what was read from L1 is loaded again
        assert other.metric("couchbase_lm_cache_loaded_bytes_total") == loads * CHUNKS_PER_REQUEST * OBJECT_BYTES
        other.stop()


def test_a_password_from_the_environment_is_shown_nowhere(place: Place, tmp_path: Path) -> None:
    params = {name: value for name, value in place.params.items() if name not in ("password", "username")}
    variables = {"LMCACHE_COUCHBASE_USERNAME": USERNAME, "LMCACHE_COUCHBASE_PASSWORD": PASSWORD}
    with server(params, tmp_path, variables) as one:
        one.await_up()
        (adapter,) = json.loads(one.get("/status"))["storage_manager"]["l2_adapters"]
        assert adapter["is_healthy"] is True
        shown = json.loads(one.get("/env"))
        assert shown["LMCACHE_COUCHBASE_USERNAME"] == USERNAME
        assert PASSWORD not in json.dumps(shown) + one.get("/config") + one.get("/status") + one.get("/metrics")
        one.stop()
    assert PASSWORD not in one.log.read_text()


def test_a_strict_server_without_couchbase_exits_and_says_why(place: Place, tmp_path: Path) -> None:
    params = place.params | {"connection_string": "couchbase://127.0.0.1:1", "connect_timeout_seconds": 1.0}
    with server(params, tmp_path) as one:
        assert one.process.wait(180) == 3
    said = one.log.read_text()
    assert "could not be used within 1 s" in said
    assert "startup: degraded" in said
    assert PASSWORD not in said


def test_the_adapter_benchmark_of_lmcache_verifies_every_byte(place: Place, tmp_path: Path) -> None:
    output = tmp_path / "bench.json"
    subprocess.run(
        [
            str(LMCACHE),
            *("bench", "l2", "--l2-adapter", adapter_json(place.params), "--num-keys", "8", "--in-flight", "2"),
            *("--data-size-kb", "2560", "--rounds", "2", "--warmup-rounds", "1", "--lookup-max-hit-rate", "1.0"),
            *("--no-skip-verify", "--format", "json", "--output", str(output), "-q"),
        ],
        env=environment(),
        check=True,
        capture_output=True,
        timeout=180,
    )
    operations = [value for name, value in json.loads(output.read_text())["metrics"].items() if name.startswith("op_")]
    assert len(operations) == 3
    assert all(operation["total_success"] == operation["total_keys"] == 32 for operation in operations)
