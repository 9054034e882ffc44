"""Is the operator itself well? ``/healthz`` for the kubelet and ``/metrics`` for Prometheus.

The server runs in a thread of its own, so that it still answers, with 503, when the event loop hangs.
"""

from __future__ import annotations

import http.server
import json
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry


@dataclass
class Watchdog:
    """Remembers when each part last showed life; thread-safe, as single dict writes are.

    ``limits_seconds`` says how long each part may be silent; a part counts from its first beat on.
    """

    clock: Callable[[], float]
    limits_seconds: dict[str, float]
    _beats: dict[str, float] = field(default_factory=dict)
    _ages: dict[str, Callable[[], float]] = field(default_factory=dict)

    def beat(self, part: str) -> None:
        """Note that a part is alive now; its limit is that of the name before the first space."""
        self._beats[part] = self.clock()

    def watch_age(self, part: str, age_seconds: Callable[[], float]) -> None:
        """Watch an age that the part itself knows."""
        self._ages[part] = age_seconds

    def problems(self) -> dict[str, float]:
        """Return the parts that are silent for too long, with their silence in seconds."""
        now = self.clock()
        silences = {part: now - since for part, since in list(self._beats.items())}
        silences |= {part: age() for part, age in list(self._ages.items())}
        return {part: age for part, age in silences.items() if age > self.limits_seconds[part.split(" ")[0]]}


class HealthServer:
    """Serves both paths while its context is open; ``port`` is the real one."""

    def __init__(self, host: str, port: int, watchdog: Watchdog, registry: CollectorRegistry) -> None:
        handler = _handler(watchdog, registry)
        self._server = http.server.ThreadingHTTPServer((host, port), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)

    @property
    def port(self) -> int:
        """Return the port that is listened on."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        """Start answering."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop answering and close the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(watchdog: Watchdog, registry: CollectorRegistry) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            if self.path == "/healthz":
                problems = watchdog.problems()
                silent = {part: f"silent for {seconds:.0f} s" for part, seconds in problems.items()}
                self._answer(503 if problems else 200, "application/json", json.dumps(silent).encode())
            elif self.path == "/metrics":
                self._answer(200, CONTENT_TYPE_LATEST, generate_latest(registry))
            else:
                self._answer(404, "text/plain", b"try /healthz or /metrics\n")

        def _answer(self, status: int, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the standard library's name
            """Stay quiet: probes come every few seconds."""

    return Handler
