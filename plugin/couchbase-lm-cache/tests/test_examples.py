"""The scripts in examples/: the smoke test on a Couchbase, the vLLM scripts on servers that behave like vLLM's."""

from __future__ import annotations

import importlib
import json
import os
import shlex
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conftest import BUCKET, PASSWORD, USERNAME, Place

from e2e.couchbase_emulator.running import RunningEmulator

EXAMPLES = Path(__file__).parents[1] / "examples"
SOURCES = Path(__file__).parents[1] / "src"
PASSED = "Couchbase LMCache store smoke test passed\n"


def run_smoke(params: dict[str, Any], **more: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LMCACHE_COUCHBASE_")}
    names = {"connection_string": "CONNSTR", "bucket_name": "BUCKET", "scope_name": "SCOPE"}
    names["collection_name"] = "COLLECTION"
    for name, value in params.items():
        environment[f"LMCACHE_COUCHBASE_{names.get(name, name.upper())}"] = value
    return subprocess.run(
        [sys.executable, str(EXAMPLES / "store_smoke.py")],
        env=environment | {"PYTHONPATH": str(SOURCES)} | more,
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_the_smoke_test_passes_and_leaves_nothing_behind(place: Place) -> None:
    done = run_smoke(place.params)
    assert (done.returncode, done.stdout) == (0, PASSED), done.stderr
    assert place.documents() == {}


def test_the_smoke_test_tells_that_couchbase_cannot_be_reached(place: Place) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused, nobody else gets the port
        params = place.params | {"connection_string": f"couchbase://127.0.0.1:{unused.getsockname()[1]}"}
        done = run_smoke(params, LMCACHE_COUCHBASE_CONNECT_TIMEOUT_SECONDS="2", LMCACHE_COUCHBASE_STARTUP="degraded")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Couchbase LMCache store smoke test failed: Couchbase at couchbase://127.0.0.1:" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_smoke_test_names_the_setting_that_is_missing() -> None:
    done = run_smoke({"connection_string": "couchbase://127.0.0.1"})
    assert done.returncode == 1
    assert "LMCACHE_COUCHBASE_BUCKET" in done.stderr


class FakeServer:
    """Answers as one vLLM and its LMCache do; ``couchbase`` is what all of them share."""

    def __init__(self, couchbase: set[str], answer: str = "42") -> None:
        self.couchbase, self.answer = couchbase, answer
        self.uses_couchbase = True
        self.log: Path | None = None
        self.local: set[str] = set()
        self.totals: Counter[str] = Counter()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.reply(fake.get(self.path))

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.reply(fake.chat(asked["messages"][0]["content"]))

            def reply(self, text: str) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def options(self) -> tuple[str, str]:
        return f"{self.url}/vllm", f"{self.url}/lmcache"

    @property
    def restart_command(self) -> str:
        code = f"import urllib.request; urllib.request.urlopen('{self.url}/restart')"
        return shlex.join([sys.executable, "-c", code])

    def get(self, path: str) -> str:
        if path == "/restart":
            self.local.clear()
            self.totals.clear()
        ours = "vllm:" if path.startswith("/vllm") else "lmcache"
        return {
            "/vllm/v1/models": '{"data": [{"id": "fake"}]}',
            "/lmcache/status": '{"is_healthy": true}',
        }.get(path) or "".join(f'{name}{{a="b"}} {n}\n' for name, n in self.totals.items() if name.startswith(ours))

    def chat(self, prompt: str) -> str:
        if self.log:
            with self.log.open("a") as log:
                log.write("served a prompt\n")
        tokens = len(prompt.split())
        in_couchbase = self.uses_couchbase and prompt in self.couchbase and prompt not in self.local
        if prompt in self.local or in_couchbase:
            self.totals["vllm:external_prefix_cache_hits_total"] += tokens
        if in_couchbase:
            self.totals["lmcache_mp_lookup_hit_l2_tokens_total"] += tokens
        self.local.add(prompt)
        self.couchbase.add(prompt)
        logprobs = {"content": [{"token": self.answer, "logprob": -0.25}]}
        events = [
            {"choices": [{"delta": {"role": "assistant", "content": ""}, "logprobs": None}]},
            {"choices": [{"delta": {"content": self.answer}, "logprobs": logprobs}]},
            {"choices": [], "usage": {"prompt_tokens": tokens}},
        ]
        return "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"


@pytest.fixture
def fakes() -> Iterator[tuple[FakeServer, FakeServer]]:
    couchbase: set[str] = set()
    pair = FakeServer(couchbase), FakeServer(couchbase)
    yield pair
    for fake in pair:
        fake.http.shutdown()
        fake.http.server_close()


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Import a script as if started from its folder."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    loaded: list[str] = ["measured_chat"]

    def load(name: str) -> ModuleType:
        loaded.append(name)
        module = importlib.import_module(name)
        monkeypatch.setattr(sys.modules["measured_chat"], "_STORE_QUIET_SECONDS", 0.0)
        return module

    yield load
    for name in loaded:
        sys.modules.pop(name, None)


def arguments(fakes: tuple[FakeServer, FakeServer], *more: str) -> list[str]:
    (vllm_a, lmcache_a), (vllm_b, lmcache_b) = (fake.options for fake in fakes)
    return ["--vllm-a", vllm_a, "--vllm-b", vllm_b, "--lmcache-a", lmcache_a, "--lmcache-b", lmcache_b, *more]


def record(folder: Path) -> dict[str, Any]:
    (run,) = folder.glob("e2e-*/run.json")
    assert "| A, computed |" in run.with_name("table.md").read_text()
    found: dict[str, Any] = json.loads(run.read_text())
    return found


def test_the_demo_records_a_prompt_that_was_computed_loaded_and_loaded_again(
    fakes: tuple[FakeServer, FakeServer], script: Any, tmp_path: Path
) -> None:
    given = arguments(fakes, "--restart-command", fakes[0].restart_command, "--evidence", str(tmp_path))
    assert script("vllm_e2e_demo").main(given) == 0
    phases = record(tmp_path)["phases"]
    assert [phase["name"] for phase in phases] == ["A, computed", "B, loaded", "A restarted, loaded"]
    tokens = phases[0]["measured"]["answer"]["prompt_tokens"]
    hits = [phase["measured"]["deltas"].get("vllm:external_prefix_cache_hits_total", 0) for phase in phases]
    assert hits == [0, tokens, tokens]
    assert all(phase["measured"]["answer"]["first_logprob"] == -0.25 for phase in phases)
    assert all(phase["lmcache_status"] == {"is_healthy": True} for phase in phases)


def test_the_demo_records_what_lmcache_logged_and_what_the_bucket_held(
    fakes: tuple[FakeServer, FakeServer],
    script: Any,
    tmp_path: Path,
    emulator: RunningEmulator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = tmp_path / "b.log"
    log.write_text("from an earlier run\n")
    fakes[1].log = log
    monkeypatch.setenv("LMCACHE_COUCHBASE_BUCKET", BUCKET)
    monkeypatch.setenv("LMCACHE_COUCHBASE_USERNAME", USERNAME)
    monkeypatch.setenv("LMCACHE_COUCHBASE_PASSWORD", PASSWORD)
    given = ["--evidence", str(tmp_path), "--lmcache-log-b", str(log), "--couchbase-url", emulator.management_urls[0]]
    assert script("vllm_e2e_demo").main(arguments(fakes, *given)) == 0
    before, after = record(tmp_path)["bucket"]
    assert before.keys() == after.keys() >= {"itemCount", "memUsed"}
    (written,) = tmp_path.glob("e2e-*/lmcache-*.log")
    assert written.name == "lmcache-b.log"
    assert "earlier" not in written.read_text()
    assert "served a prompt" in written.read_text()
    assert PASSWORD not in next(tmp_path.glob("e2e-*/run.json")).read_text()


def test_the_demo_fails_when_b_computes(fakes: tuple[FakeServer, FakeServer], script: Any, tmp_path: Path) -> None:
    fakes[1].uses_couchbase = False
    assert script("vllm_e2e_demo").main(arguments(fakes, "--evidence", str(tmp_path))) == 1
    assert "only 0% of the prompt came from the cache" in record(tmp_path)["complaints"][0]


def test_the_demo_fails_when_answers_differ(fakes: tuple[FakeServer, FakeServer], script: Any, tmp_path: Path) -> None:
    fakes[1].answer = "43"
    assert script("vllm_e2e_demo").main(arguments(fakes, "--evidence", str(tmp_path))) == 1
    assert record(tmp_path)["complaints"] == ["B, loaded: answered '43', computed was '42'"]


def test_a_restart_that_was_none_is_noticed(fakes: tuple[FakeServer, FakeServer], script: Any, tmp_path: Path) -> None:
    given = arguments(fakes, "--restart-command", "true", "--evidence", str(tmp_path))
    assert script("vllm_e2e_demo").main(given) == 1
    assert "A restarted, loaded: LMCache found nothing in Couchbase" in record(tmp_path)["complaints"][0]


@pytest.mark.parametrize("name", ["vllm_e2e_demo", "ttft_benchmark"])
def test_a_server_that_does_not_answer_is_named(
    name: str, script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        assert script(name).main(["--vllm-a", url]) == 1
    assert f"{url}/v1/models cannot be read" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_benchmark_compares_computed_with_loaded_before_and_after_a_restart(
    fakes: tuple[FakeServer, FakeServer], script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = tmp_path / "ttft.json"
    given = ["--prompts", "2", "--json", str(figures), "--restart-command", fakes[0].restart_command]
    assert script("ttft_benchmark").main(arguments(fakes, *given)) == 0
    table = capsys.readouterr().out
    for row in ("computed on A", "loaded by B", "loaded by A after a restart"):
        assert f"| {row} | 2 |" in table
    assert [one["share_from_cache"] for one in json.loads(figures.read_text())] == [0, 0, 1, 1, 1, 1]


def test_the_benchmark_fails_when_nothing_is_loaded(fakes: tuple[FakeServer, FakeServer], script: Any) -> None:
    fakes[1].uses_couchbase = False
    assert script("ttft_benchmark").main(arguments(fakes, "--prompts", "1")) == 1
