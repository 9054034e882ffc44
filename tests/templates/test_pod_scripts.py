"""The preStop and probe scripts, run as the pod runs them."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from couchbase_lm_operator.core.pod_template.pod_script import pod_script

if TYPE_CHECKING:
    from collections.abc import Iterator


class Server:
    """What LMCache answers at /status, changed by the test."""

    def __init__(self, port: int = 0) -> None:
        self.pending = 0
        self.in_flight = 0
        self.body: bytes | None = None
        self.status = 200
        self.asked = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.asked.set()
                owner.may_answer.wait(60)
                controllers = {
                    "l1": {"pending_keys_count": owner.pending, "in_flight_task_count": owner.in_flight},
                }
                status: dict[str, Any] = {"storage_manager": {"store_controllers": controllers}}
                body = owner.body if owner.body is not None else json.dumps(status).encode()
                self.send_response(owner.status)
                self.end_headers()
                with contextlib.suppress(OSError):  # the script has stopped waiting for this answer
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Answer whoever waits, and stop listening."""
        self.may_answer.set()
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def drain(engine_port: int, server_port: int, limit_seconds: float) -> subprocess.Popen[bytes]:
    arguments = [str(engine_port), str(server_port), str(limit_seconds)]
    return subprocess.Popen([sys.executable, "-ISc", pod_script("drain.py"), *arguments])


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_it_waits_for_vllm_then_for_stores(server: Server) -> None:
    server.pending = 3
    with socket.create_server(("127.0.0.1", 0)) as engine:
        process = drain(engine.getsockname()[1], server.port, 60)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.2)
        assert not server.asked.is_set()  # vLLM still listens
    assert server.asked.wait(10)
    server.pending, server.in_flight = 0, 1
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.2)
    server.in_flight = 0
    assert process.wait(10) == 0


def test_it_ends_at_the_limit(server: Server) -> None:
    server.in_flight = 1
    started = time.monotonic()
    assert drain(closed_port(), server.port, 2).wait(20) == 0
    assert time.monotonic() - started >= 2


def test_a_server_that_still_starts_is_waited_for() -> None:
    port = closed_port()
    process = drain(closed_port(), port, 60)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(2)
    server = Server(port)
    try:
        assert process.wait(10) == 0
    finally:
        server.close()


def test_a_server_too_busy_to_answer_is_waited_for(server: Server) -> None:
    server.in_flight = 1
    server.may_answer.clear()
    process = drain(closed_port(), server.port, 60)
    assert server.asked.wait(10)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(7)  # longer than two unanswered looks of a script that gives up after the first
    server.may_answer.set()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.5)
    server.in_flight = 0
    assert process.wait(10) == 0


def test_a_server_that_never_answers_is_left_at_the_limit(server: Server) -> None:
    server.may_answer.clear()
    started = time.monotonic()
    assert drain(closed_port(), server.port, 3).wait(20) == 0
    assert 3 <= time.monotonic() - started < 15


@pytest.mark.parametrize("body", [b"", b"not json", b"[]", b'{"storage_manager": {}}', b"null"])
def test_it_never_fails_on_an_answer_it_does_not_know(server: Server, body: bytes) -> None:
    server.body = body
    assert drain(closed_port(), server.port, 60).wait(20) == 0


# A process that starts like vLLM: deaf to SIGTERM until it serves, and ended by the end of its engine's processes.
STARTING = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
engine = subprocess.Popen(["sh", "-c", "sleep 600; true"])
print("started", flush=True)
sys.exit(engine.wait())
"""
AS_ROOT = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
ENTER = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]


class Container:
    """Processes with a numbering of their own, as the script must only ever see them: it kills the others."""

    def __init__(self) -> None:
        apart = ["unshare", *AS_ROOT, "--pid", "--fork", "--kill-child", "--mount-proc"]
        command = [*apart, sys.executable, "-ISc", STARTING]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "started\n"
        (first,) = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        self.enter = ["nsenter", "--target", first, *ENTER, "--pid", "--mount", "--"]

    def stop(self, port: int, serving_seconds: float, limit_seconds: float) -> subprocess.Popen[bytes]:
        """Run the script in it, as a container runtime does."""
        arguments = [str(port), str(serving_seconds), str(limit_seconds)]
        return subprocess.Popen([*self.enter, sys.executable, "-ISc", pod_script("stop_engine.py"), *arguments])

    def close(self) -> None:
        """End whatever still runs."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def container() -> Iterator[Container]:
    container = Container()
    yield container
    container.close()


def test_an_engine_that_does_not_serve_yet_is_ended_with_all_its_processes(container: Container) -> None:
    stopping = container.stop(closed_port(), 60, 60)
    assert container.process.wait(20) != 0
    assert stopping.wait(20) != 0  # it has gone with the container


def test_requests_may_come_for_a_while_and_are_then_finished(container: Container, engine: Engine) -> None:
    stopping = container.stop(engine.port, 1, 60)
    with pytest.raises(subprocess.TimeoutExpired):
        stopping.wait(1)
    engine.running = 1
    with pytest.raises(subprocess.TimeoutExpired):
        stopping.wait(3)
    engine.running, engine.waiting = 0, 1
    with pytest.raises(subprocess.TimeoutExpired):
        stopping.wait(2)
    engine.waiting = 0
    assert stopping.wait(10) == 0
    assert container.process.poll() is None


@pytest.mark.parametrize("metrics", [None, "", "vllm:num_requests_running 1e0\nvllm:num_requests_waiting 0\n"])
def test_under_requests_without_an_end_the_engine_is_ended_at_the_limit(
    container: Container, engine: Engine, metrics: str | None
) -> None:
    engine.metrics, started = metrics, time.monotonic()
    stopping = container.stop(engine.port, 0, 2)
    assert container.process.wait(20) != 0
    assert 2 <= time.monotonic() - started < 12
    assert stopping.wait(20) != 0


def probe(port: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-ISc", pod_script("health.py"), str(port)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_probe_tells_in_a_sentence_what_is_wrong(server: Server) -> None:
    assert probe(server.port).returncode == 0
    server.status = 503
    ill, gone = probe(server.port), probe(closed_port())
    assert (ill.returncode, gone.returncode) == (1, 1)
    assert ill.stderr == "the LMCache server answers 503\n"
    assert "does not answer" in gone.stderr
    assert "Traceback" not in gone.stderr


class Engine:
    """A vLLM that answers /health and completions with what the test says."""

    def __init__(self) -> None:
        self.health, self.completion = 200, 200
        self.running, self.waiting = 0, 0
        self.metrics: str | None = 'vllm:num_requests_running{{engine="0"}} {}\nvllm:num_requests_waiting {}.0\n'
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/metrics" and owner.metrics is not None:
                    self.send_response(200)
                    self.end_headers()
                    self.wfile.write(owner.metrics.format(owner.running, owner.waiting).encode())
                    return
                self.send_response(owner.health if self.path == "/health" else 404)
                self.end_headers()

            def do_POST(self) -> None:
                assert self.path == "/v1/completions"
                owner.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                owner.keys.append(self.headers["Authorization"])
                self.send_response(owner.completion)
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    yield engine
    engine.http.shutdown()
    engine.http.server_close()


def warm_up(port: int, startup_seconds: float = 1e9, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-ISc", pod_script("warmup.py"), str(port), "served", "257", str(startup_seconds)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_an_engine_whose_time_to_start_is_over_is_not_asked_for_another_long_prompt(engine: Engine) -> None:
    late = warm_up(engine.port, startup_seconds=0)
    assert late.returncode == 1
    assert "within 0 s of its start" in late.stderr
    assert engine.asked == []


def test_an_engine_is_started_once_it_answered_a_prompt_of_a_full_chunk(engine: Engine) -> None:
    assert warm_up(engine.port).returncode == 0
    (body,) = engine.asked
    assert (body["model"], len(body["prompt"]), body["max_tokens"]) == ("served", 257, 1)
    assert engine.keys == [None]


def test_every_pod_asks_the_same_prompt_with_the_key_that_vllm_wants(engine: Engine) -> None:
    for _ in range(2):
        assert warm_up(engine.port, VLLM_API_KEY="k").returncode == 0
    assert engine.asked[0] == engine.asked[1]
    assert engine.keys == ["Bearer k", "Bearer k"]


@pytest.mark.parametrize("refusal", [400, 401, 404])
def test_an_engine_that_refuses_the_prompt_is_up(engine: Engine, refusal: int) -> None:
    engine.completion = refusal
    assert warm_up(engine.port).returncode == 0


def test_an_engine_that_is_ill_or_breaks_at_the_prompt_is_not_started(engine: Engine) -> None:
    engine.completion = 500
    broken = warm_up(engine.port)
    engine.health = 503
    ill, gone = warm_up(engine.port), warm_up(closed_port())
    assert [broken.returncode, ill.returncode, gone.returncode] == [1, 1, 1]
    assert broken.stderr == "vLLM answers 500 to a prompt of 257 tokens\n"
    assert ill.stderr == "vLLM answers 503 to /health\n"
    assert gone.stderr == "vLLM does not answer\n"
