"""Addresses of a host, without waiting for them longer than the caller may.

The C library's ``getaddrinfo`` knows no time limit, and a name server that is silent holds it up for many
seconds. It therefore runs in a thread of its own: one for each name, shared by all who ask for it meanwhile,
so that their number stays that of the names.
"""

from __future__ import annotations

import errno
import socket
import threading
import time
from concurrent import futures
from typing import Any, NamedTuple


class Address(NamedTuple):
    """What :func:`socket.socket` and ``connect`` take."""

    family: socket.AddressFamily
    place: Any


_lock = threading.Lock()
_under_way: dict[str, futures.Future[list[Address]]] = {}


def look_up(host: str, port: int, deadline: float) -> list[Address]:
    """Return the addresses of a host, best first.

    Args:
        host: a name, or an address as text, which is never waited for.
        port: of TCP.
        deadline: moment on the monotonic clock at which nothing more is waited for.

    Raises:
        OSError: there is none (``gaierror``), none was found in time (``TimeoutError``), or the system has no
            thread left to look for one.
        ValueError: ``host`` can be no name.
        OverflowError: ``port`` can be no port.
    """
    try:
        return _ask(host, port, socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass  # a name then
    with _lock:
        answer = _under_way.get(host) or _start(host)
    if not futures.wait([answer], max(0.0, deadline - time.monotonic())).done:
        raise TimeoutError
    return [Address(family, (place[0], port, *place[2:])) for family, place in answer.result()]


def _start(host: str) -> futures.Future[list[Address]]:
    """Look for a name in a thread of its own; the lock is held."""
    answer: futures.Future[list[Address]] = futures.Future()
    try:
        threading.Thread(target=_find, args=(host, answer), name="couchbase-lm-names", daemon=True).start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, "no thread could be started to look its name up") from error
    # Only now: nobody must wait for an answer that no thread is to give.
    _under_way[host] = answer
    return answer


def _find(host: str, answer: futures.Future[list[Address]]) -> None:
    try:
        found = _ask(host, 0)
    except BaseException as error:  # noqa: BLE001  # it belongs to those who wait for the answer
        _forget(host)
        answer.set_exception(error)
    else:
        _forget(host)
        answer.set_result(found)


def _forget(host: str) -> None:
    with _lock:
        _under_way.pop(host, None)


def _ask(host: str, port: int, flags: int = 0) -> list[Address]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [Address(family, place) for family, _, _, _, place in found]
