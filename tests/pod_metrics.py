"""Stands for the metrics port of a pod's adapter: says what the test wants, and counts who asks."""

from __future__ import annotations

import http.server
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LONE_RANK = 0x01000100
_PLACE = 'bucket="b",collection="s.c"'


@dataclass
class PodMetrics:
    """``body`` is sent as it is; ``status``, ``headers`` and ``delay_seconds`` are for a pod that misbehaves."""

    port: int = 0
    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    delay_seconds: float = 0.0
    paths: list[str] = field(default_factory=list)

    def tell(
        self, *objects: tuple[int, int, int], loads: int = 0, loaded_bytes: int = 0, seconds: float = 0.0
    ) -> PodMetrics:
        """Tell objects as (group, rank, bytes) and whole loads, as couchbase-lm-cache writes them."""
        lines = [
            f'couchbase_lm_cache_object_bytes{{{_PLACE},kv_rank="0x{rank:08x}",layout="0a",model_name="m",'
            f'object_group="{group}"}} {float(size)}'
            for group, rank, size in objects
        ]
        lines += [
            f"couchbase_lm_cache_load_seconds_count{{{_PLACE}}} {float(loads)}",
            f"couchbase_lm_cache_load_seconds_sum{{{_PLACE}}} {seconds}",
            f"couchbase_lm_cache_loaded_bytes_total{{{_PLACE}}} {float(loaded_bytes)}",
        ]
        self.body = "\n".join([*lines, ""]).encode()
        return self


@contextmanager
def running_pod_metrics() -> Iterator[PodMetrics]:
    """Serve on a free port of 127.0.0.1 until the block ends."""
    pod = PodMetrics()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            pod.paths.append(self.path)
            time.sleep(pod.delay_seconds)
            self.send_response(pod.status)
            for name, value in pod.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(pod.body)))
            self.end_headers()
            self.wfile.write(pod.body)

        def log_message(self, *_: object) -> None:
            """Stay quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    pod.port = int(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield pod
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
