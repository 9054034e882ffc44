"""A small local server that speaks the hub's file protocol, and can misbehave."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = {"model_type": "llama", "num_hidden_layers": 30}


@dataclass
class Hub:
    """What the server answers, and what it was asked."""

    url: str = ""
    body: bytes = json.dumps(CONFIG).encode()
    status: int = 200
    error_code: str = ""
    location: str = ""
    encoding: str = ""
    is_endless: bool = False
    sent_bytes: int = 0
    tokens: list[str | None] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)


@contextmanager
def running_hub() -> Iterator[Hub]:
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def log_message(self, *_: Any) -> None:
            return

        def _answer(self) -> None:
            hub.tokens.append(self.headers.get("Authorization"))
            hub.paths.append(self.path)
            if hub.location and "/resolve/" in self.path:
                self.send_response(307)
                self.send_header("Location", hub.location)
                self.send_header("X-Repo-Commit", COMMIT)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            is_file = self.path.endswith("/config.json") and hub.status == 200
            body = hub.body if is_file else b"{}"
            self.send_response(200 if is_file else hub.status if hub.status != 200 else 404)
            if not hub.is_endless:
                self.send_header("Content-Length", str(len(body)))
            if hub.encoding:
                self.send_header("Content-Encoding", hub.encoding)
            self.send_header("ETag", '"0123456789abcdef"')
            self.send_header("X-Repo-Commit", COMMIT)
            if hub.error_code:
                self.send_header("X-Error-Code", hub.error_code)
            self.end_headers()
            self.wfile.write(body)
            while hub.is_endless:
                try:
                    hub.sent_bytes += self.wfile.write(b" " * 65536)
                except OSError:
                    return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        hub.url = f"http://127.0.0.1:{server.server_port}"
        yield hub
        server.shutdown()
        thread.join()
