"""Looking host names up, in threads of its own.

A lookup cannot be interrupted and takes up to a minute when the name servers of a zone are dead. Whoever asks for a
name that is being looked up waits for that lookup, and the event loop's own threads stay free for other work.
"""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

_THREADS = 64

_pool = ThreadPoolExecutor(_THREADS, "name lookup")
_under_way: dict[str, Future[list[Any]]] = {}


async def looked_up(host: str) -> list[str]:
    """Return the addresses of a host as text, in the order of preference.

    Raises:
        OSError: there is no such name, or nobody knows.
        ValueError: this can be no name.
    """
    lookup = _under_way.get(host)
    if lookup is None:
        lookup = _under_way[host] = _pool.submit(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
        lookup.add_done_callback(lambda _: _under_way.pop(host, None))
    # shielded: who gives up must not take the answer from the others
    found = await asyncio.shield(asyncio.wrap_future(lookup))
    return list(dict.fromkeys(str(info[4][0]).partition("%")[0] for info in found))
