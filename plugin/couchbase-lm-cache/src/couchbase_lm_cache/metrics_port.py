"""An HTTP port that serves ``/metrics`` and nothing else; ``?name[]=`` picks series, as in prometheus_client.

LMCache's own port also shows its configuration and environment and takes commands, without a login. This
one can be opened to a monitoring system instead.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest

from couchbase_lm_cache.errors import SettingsError

if TYPE_CHECKING:
    from couchbase_lm_cache.settings import CouchbaseLMCacheConfig

_CLIENT_TIMEOUT_SECONDS = 5.0
_CLOSE_WAIT_SECONDS = 2.0


class MetricsPort:
    """Serves until it is closed.

    Args:
        settings: ``metrics_host`` and ``metrics_port``.

    Raises:
        SettingsError: nobody can listen there.
    """

    def __init__(self, settings: CouchbaseLMCacheConfig) -> None:
        place = (settings.metrics_host, settings.metrics_port)
        try:
            self._server = _Server(place, _Handler)
        except (OSError, OverflowError) as error:
            raise SettingsError(
                f"metrics_host {place[0]!r} and metrics_port {place[1]}: cannot listen there ({error}). "
                "Choose a free port, or 0 to serve metrics on LMCache's HTTP port alone"
            ) from None
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.2}, name="couchbase-lm-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening, within about two seconds."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_CLOSE_WAIT_SECONDS)


class _Server(ThreadingHTTPServer):
    """Listens on one address; on all of them, of IPv6 too where there is any, when the host is empty."""

    daemon_threads = True
    # A client that does not end its request must not keep the adapter from closing.
    block_on_close = False

    def __init__(self, place: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        is_everywhere = not place[0] and socket.has_dualstack_ipv6()
        self.address_family = socket.AF_INET6 if is_everywhere or ":" in place[0] else socket.AF_INET
        super().__init__(place, handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            with contextlib.suppress(OSError):  # an address of IPv6 alone is bound all the same
                self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # Not HTTPServer's, which asks the name server for a name that nobody needs and waits for the answer.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])


class _Handler(BaseHTTPRequestHandler):
    timeout = _CLIENT_TIMEOUT_SECONDS
    server_version = "couchbase-lm-cache"
    sys_version = ""

    def do_GET(self) -> None:
        target = urlsplit(self.path)
        if target.path != "/metrics":
            self.send_error(404)
            return
        names = parse_qs(target.query).get("name[]")
        body = generate_latest(REGISTRY.restricted_registry(names) if names else REGISTRY)
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE_LATEST)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing: scrapes come every few seconds."""
