"""A non-blocking connection to one port, with or without TLS, that moves bytes between it and memory we own.

:meth:`SSLSocket.shutdown` makes a socket of Python plain: whoever receives or sends on it at that moment
goes on without TLS. It is never called here, and only ``read`` and ``write`` are used, which refuse to work
on a socket whose TLS is gone where ``recv_into`` and ``send`` fall back to plain text.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING

from couchbase_lm_cache.direct.name_lookup import look_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from couchbase_lm_cache.direct.addresses import Node

BLOCKED = -1
"""Nothing could be moved now; :attr:`Stream.wants` tells what to wait for."""

_KEEPALIVE_IDLE_SECONDS = 30


class ConnectionLostError(Exception):
    """The peer closed or reset the connection, or it could not be made."""


class Stream:
    """One connected socket. Used by one thread at a time; :meth:`abort` may come from any.

    Args:
        node: where to.
        tls: context that verifies the peer, or None for plain text.
        deadline: moment on the monotonic clock at which the attempt fails.

    Raises:
        ConnectionLostError: no connection came about by the deadline; the message says why.
        ssl.SSLCertVerificationError: the peer's certificate was not accepted.
    """

    def __init__(self, node: Node, tls: ssl.SSLContext | None, deadline: float) -> None:
        try:
            raw = _connect(node, deadline)
        except (OSError, ValueError, OverflowError) as error:
            raise ConnectionLostError(f"{node.host}:{node.port}: {_reason(error, 'no answer')}") from None
        self._secured: ssl.SSLSocket | None = None
        self._socket = raw
        self._ending = threading.Lock()
        self._closed = False
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE_SECONDS)
            if tls is not None:
                raw.settimeout(_left(deadline))
                self._socket = self._secured = tls.wrap_socket(raw, server_hostname=node.host)
        except ssl.SSLCertVerificationError:
            raw.close()
            raise
        except (OSError, ValueError) as error:
            raw.close()
            raise ConnectionLostError(f"{node.host}:{node.port}: {_reason(error, 'no TLS')}") from None
        self._socket.setblocking(False)
        self.wants = select.POLLIN

    def fileno(self) -> int:
        """Return the descriptor for poll."""
        return self._socket.fileno()

    def receive(self, parts: Sequence[memoryview]) -> int:
        """Fill ``parts``, one after the other, with what has arrived; return how much, or BLOCKED.

        Raises:
            ConnectionLostError: the peer is gone.
        """
        try:
            if self._secured is not None:
                part = next(part for part in parts if part)
                count: int = self._secured.read(len(part), part)  # type: ignore[assignment]  # how much, with a buffer
            else:
                count = self._socket.recvmsg_into(parts)[0]
        except (BlockingIOError, ssl.SSLWantReadError):
            self.wants = select.POLLIN
            return BLOCKED
        except ssl.SSLWantWriteError:
            self.wants = select.POLLOUT
            return BLOCKED
        except (OSError, ValueError) as error:
            raise _lost(error) from None
        if count == 0:
            raise ConnectionLostError("the server closed the connection")
        return count

    def send(self, parts: Sequence[bytes | memoryview]) -> int:
        """Send the beginning of ``parts``; return how much, or BLOCKED.

        Raises:
            ConnectionLostError: the peer is gone.
        """
        try:
            if self._secured is not None:
                return self._secured.write(next(part for part in parts if part))
            return self._socket.sendmsg(parts)
        except (BlockingIOError, ssl.SSLWantWriteError):
            self.wants = select.POLLOUT
        except ssl.SSLWantReadError:
            self.wants = select.POLLIN
        except (OSError, ValueError) as error:
            raise _lost(error) from None
        return BLOCKED

    def is_silent(self) -> bool:
        """Say whether nothing waits to be read: an idle connection that has something to say is of no use."""
        if self._secured is not None and self._secured.pending():
            return False
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        return not poller.poll(0)

    def abort(self) -> None:
        """Make every call under way or to come fail; the owner still closes. Without effect after :meth:`close`."""
        with self._ending, contextlib.suppress(OSError):
            if not self._closed:
                # Of the connection alone: the thread that uses it must go on meeting TLS.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Disconnect, after an abort under way: its descriptor may be another's as soon as it is free. Idempotent."""
        with self._ending:
            self._closed = True
            self._socket.close()


def tls_context(ca_file: str | None, *, verify: bool) -> ssl.SSLContext:
    """Return a context that checks certificate and host name, unless ``verify`` is false.

    Raises:
        OSError: ``ca_file`` cannot be read or holds no certificate.
    """
    context = ssl.create_default_context(cafile=ca_file)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _connect(node: Node, deadline: float) -> socket.socket:
    """Connect to the first address of the node that answers; each gets its share of the time that is left.

    Raises:
        OSError, ValueError, OverflowError: what the last address failed with, or there is none.
    """
    addresses = look_up(node.host, node.port, deadline)
    failure: OSError = ConnectionRefusedError()
    for position, address in enumerate(addresses):
        raw = socket.socket(address.family, socket.SOCK_STREAM)
        try:
            raw.settimeout(_left(deadline) / (len(addresses) - position))
            raw.connect(address.place)
        except OSError as error:
            raw.close()
            failure = error
        except BaseException:
            raw.close()
            raise
        else:
            return raw
    raise failure


def _lost(error: OSError | ValueError) -> ConnectionLostError:
    # A ValueError says that TLS has ended; nothing was moved.
    return ConnectionLostError(_reason(error, "the connection broke"))


def _reason(error: Exception, otherwise: str) -> str:
    """Say in the system's words what went wrong; others may hold what the peer sent."""
    return getattr(error, "strerror", None) or otherwise


def _left(deadline: float) -> float:
    # 0 would mean "do not wait at all" to the socket module.
    return max(0.001, deadline - time.monotonic())
