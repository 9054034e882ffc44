"""A non-blocking connection to one port, with or without TLS, that moves bytes between it and memory we own."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from couchbase_lm_cache.direct.cluster_map import Node

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
        ConnectionLostError: no connection came about; the message says why.
        ssl.SSLCertVerificationError: the peer's certificate was not accepted.
    """

    def __init__(self, node: Node, tls: ssl.SSLContext | None, deadline: float) -> None:
        try:
            raw = socket.create_connection((node.host, node.port), timeout=_left(deadline))
        except OSError as error:
            raise ConnectionLostError(f"{node.host}:{node.port}: {error.strerror or 'no answer'}") from None
        self._tls = False
        self._socket = raw
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE_SECONDS)
            if tls is not None:
                raw.settimeout(_left(deadline))
                self._socket = tls.wrap_socket(raw, server_hostname=node.host)
                self._tls = True
        except ssl.SSLCertVerificationError:
            raw.close()
            raise
        except OSError as error:
            raw.close()
            raise ConnectionLostError(f"{node.host}:{node.port}: {error.strerror or 'no TLS'}") from None
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
            if self._tls:
                count = self._socket.recv_into(next(part for part in parts if part))
            else:
                count = self._socket.recvmsg_into(parts)[0]
        except (BlockingIOError, ssl.SSLWantReadError):
            self.wants = select.POLLIN
            return BLOCKED
        except ssl.SSLWantWriteError:
            self.wants = select.POLLOUT
            return BLOCKED
        except OSError as error:
            raise ConnectionLostError(error.strerror or "the connection broke") from None
        if count == 0:
            raise ConnectionLostError("the server closed the connection")
        return count

    def send(self, parts: Sequence[bytes | memoryview]) -> int:
        """Send the beginning of ``parts``; return how much, or BLOCKED.

        Raises:
            ConnectionLostError: the peer is gone.
        """
        try:
            if self._tls:
                return self._socket.send(next(part for part in parts if part))
            return self._socket.sendmsg(parts)
        except (BlockingIOError, ssl.SSLWantWriteError):
            self.wants = select.POLLOUT
        except ssl.SSLWantReadError:
            self.wants = select.POLLIN
        except OSError as error:
            raise ConnectionLostError(error.strerror or "the connection broke") from None
        return BLOCKED

    def is_silent(self) -> bool:
        """Say whether nothing waits to be read: an idle connection that has something to say is of no use."""
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        return not poller.poll(0)

    def abort(self) -> None:
        """Make every call under way or to come fail; the owner still closes."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Disconnect."""
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


def _left(deadline: float) -> float:
    # 0 would mean "do not wait at all" to the socket module.
    return max(0.001, deadline - time.monotonic())
