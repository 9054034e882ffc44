"""A model's config.json from a hub: a small local server that speaks the hub's file protocol."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from couchbase_lm_operator.core.observed import MalformedModelConfig, Missing, ModelConfig, Unread
from couchbase_lm_operator.io.hf_hub import HubModel, ModelHub

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = {"model_type": "llama", "num_hidden_layers": 30}
TOKEN = "hf_a-secret-token"


@dataclass
class Hub:
    """What the server answers, and what it was asked."""

    url: str = ""
    body: bytes = json.dumps(CONFIG).encode()
    status: int = 200
    error_code: str = ""
    tokens: list[str | None] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)


@contextmanager
def running_hub() -> Iterator[Hub]:
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def log_message(self, *_: Any) -> None:
            return

        def _answer(self, *, with_body: bool) -> None:
            hub.tokens.append(self.headers.get("Authorization"))
            hub.paths.append(self.path)
            is_file = self.path.endswith("/config.json") and hub.status == 200
            body = hub.body if is_file else b"{}"
            self.send_response(200 if is_file else hub.status if hub.status != 200 else 404)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", '"0123456789abcdef"')
            self.send_header("X-Repo-Commit", COMMIT)
            if hub.error_code:
                self.send_header("X-Error-Code", hub.error_code)
            self.end_headers()
            if with_body:
                self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        hub.url = f"http://127.0.0.1:{server.server_port}"
        yield hub
        server.shutdown()
        thread.join()


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running_hub() as running:
        yield running


def model(hub: Hub, **changes: str) -> HubModel:
    return HubModel(**({"model_id": "org/model", "endpoint": hub.url} | changes))


async def test_a_config_comes_with_the_commit_it_belongs_to(hub: Hub) -> None:
    found = await ModelHub().config(model(hub))
    assert isinstance(found, ModelConfig)
    assert (found.content, found.revision) == (CONFIG, COMMIT)
    assert any(f"/org/model/resolve/{COMMIT}/config.json" in path for path in hub.paths)


async def test_a_commit_is_asked_for_once_and_a_branch_only_for_its_commit(hub: Hub) -> None:
    models = ModelHub()
    first = await models.config(model(hub))
    hub.paths.clear()
    assert await models.config(model(hub, revision=COMMIT)) == first
    assert hub.paths == []
    assert await models.config(model(hub)) == first
    assert hub.paths == ["/org/model/resolve/main/config.json"]


async def test_the_token_travels_in_the_header_and_nowhere_else(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    wanted = model(hub, token=TOKEN)
    assert isinstance(await ModelHub().config(wanted), ModelConfig)
    assert set(hub.tokens) == {f"Bearer {TOKEN}"}
    assert TOKEN not in repr(wanted) + caplog.text + "".join(hub.paths)


async def test_no_token_of_the_operators_own_environment_is_sent(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    await ModelHub().config(model(hub))
    assert set(hub.tokens) == {None}


@pytest.mark.parametrize(
    ("status", "code", "kind", "words"),
    [
        (404, "RepoNotFound", Missing, "spec.model.id"),
        (401, "RepoNotFound", Missing, "spec.model.id"),
        (404, "RevisionNotFound", Missing, "spec.model.revision"),
        (404, "EntryNotFound", Missing, "config.json"),
        (403, "GatedRepo", Unread, "spec.model.tokenSecretRef"),
        (500, "", Unread, "HTTP 500"),
        (429, "", Unread, "HTTP 429"),
    ],
)
async def test_refusals_are_told_apart(hub: Hub, status: int, code: str, kind: type, words: str) -> None:
    hub.status, hub.error_code = status, code
    found = await ModelHub().config(model(hub, token=TOKEN))
    assert isinstance(found, kind)
    assert words in str(found)
    assert TOKEN not in str(found)


@pytest.mark.parametrize("body", [b"not json", b"[1]", b'{"a":', b"\xff\xfe", b"[" * 100_000, b"x" * 3_000_000])
async def test_what_is_no_config_is_told(hub: Hub, body: bytes) -> None:
    hub.body = body
    assert isinstance(await ModelHub().config(model(hub)), MalformedModelConfig)


async def test_a_dead_hub_is_told() -> None:
    with running_hub() as hub:
        pass
    found = await ModelHub().config(model(hub))
    assert isinstance(found, Unread)
    assert "does not answer" in found.detail


async def test_what_a_branch_led_to_last_stands_while_the_hub_is_out_of_order(hub: Hub) -> None:
    models = ModelHub()
    hub.status = 503
    assert isinstance(await models.config(model(hub)), Unread)
    hub.status = 200
    found = await models.config(model(hub))
    assert isinstance(found, ModelConfig)
    hub.status = 503
    assert await models.config(model(hub)) == found
    # who did not read it before does not get it now
    for stranger in (model(hub, token=TOKEN), model(hub, revision="other"), model(hub, model_id="org/other")):
        assert isinstance(await models.config(stranger), Unread)
    hub.status, hub.error_code = 404, "RevisionNotFound"
    assert isinstance(await models.config(model(hub)), Missing)


@pytest.mark.parametrize(
    "endpoint",
    ["file:///etc", "http://user:pw@host", "http://169.254.169.254", "no-url", "http://no-such-host.invalid"],
)
async def test_endpoints_that_are_not_asked(endpoint: str) -> None:
    assert isinstance(await ModelHub().config(HubModel("org/model", endpoint=endpoint)), Unread)


@pytest.mark.parametrize("model_id", ["a/b/c", "../etc", "org/mo del", "org/model--x", ""])
async def test_ids_that_are_no_repository(hub: Hub, model_id: str) -> None:
    assert isinstance(await ModelHub().config(model(hub, model_id=model_id)), Unread)
