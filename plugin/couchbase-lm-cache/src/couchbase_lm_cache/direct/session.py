"""One connection to a data node that is logged in and has the bucket open."""

from __future__ import annotations

import ssl
import struct
import time
from typing import TYPE_CHECKING

from couchbase_lm_cache.direct.exchange import Lane, run
from couchbase_lm_cache.direct.requests import Request
from couchbase_lm_cache.direct.scram import ScramClient, choose_mechanism, plain_message
from couchbase_lm_cache.direct.stream import ConnectionLostError, Stream
from couchbase_lm_cache.direct.wire import Feature, Opcode, ProtocolError, Status

if TYPE_CHECKING:
    from couchbase_lm_cache.credentials import Credentials
    from couchbase_lm_cache.direct.addresses import Node

_AGENT = b"couchbase-lm-cache"
_FEATURES = (Feature.TCP_NODELAY, Feature.EXTENDED_ERRORS, Feature.SELECT_BUCKET, Feature.COLLECTIONS)
_MANIFEST_AND_COLLECTION_ID = struct.Struct(">QI")


class LoginRefusedError(Exception):
    """The server does not accept the username or password."""


class BucketRefusedError(Exception):
    """The bucket does not exist on this node, or the user has no right on it."""


class CollectionRefusedError(Exception):
    """The collection does not exist on this node, or the user has no right on it."""


class Session:
    """A connection that is ready for documents.

    Args:
        node: where to.
        tls: context for TLS, or None.
        credentials: who logs in.
        bucket: what is opened.
        deadline: moment on the monotonic clock at which the attempt fails.

    Raises:
        ConnectionLostError: no answer, or the connection broke.
        ssl.SSLCertVerificationError: the peer's certificate was not accepted.
        LoginRefusedError: the login was refused.
        BucketRefusedError: the bucket was.
        ProtocolError: the peer does not speak the protocol as expected.
    """

    def __init__(
        self, node: Node, tls: ssl.SSLContext | None, credentials: Credentials, bucket: str, deadline: float
    ) -> None:
        self.node = node
        self.stream = Stream(node, tls, deadline)
        try:
            self._greet(deadline)
            self._log_in(credentials, deadline, is_encrypted=tls is not None)
            self._open_bucket(bucket, deadline)
        except BaseException:
            self.stream.close()
            raise

    def ask(self, request: Request, deadline: float) -> Request:
        """Send one request and return it with its answer.

        Raises:
            ConnectionLostError: there was none in time; the connection cannot be used any more.
            ProtocolError: it is not understood; likewise.
        """
        lane = Lane(self.stream, [request])
        run([lane], deadline)
        if lane.failure is not None:
            raise lane.failure
        if not lane.is_clean:
            if time.monotonic() >= deadline:
                raise ConnectionLostError("the server did not answer in time")
            raise ProtocolError("the server sent more than was asked for")
        return request

    def cluster_config(self, deadline: float) -> bytes:
        """Return the bucket's configuration (JSON).

        Raises:
            ConnectionLostError, ProtocolError: as :meth:`ask`, or it was refused.
        """
        return self._expect_ok(Request(Opcode.GET_CLUSTER_CONFIG), "a configuration", deadline).response_value

    def collection_id(self, scope: str, collection: str, deadline: float) -> int:
        """Return the number that stands before the keys of a collection.

        Raises:
            CollectionRefusedError: it does not exist, or the user has no right on it.
            ConnectionLostError, ProtocolError: as :meth:`ask`.
        """
        request = Request(Opcode.GET_COLLECTION_ID, value=f"{scope}.{collection}".encode())
        status = self.ask(request, deadline).status
        if status in (Status.UNKNOWN_COLLECTION, Status.UNKNOWN_SCOPE, Status.ACCESS_DENIED, Status.AUTH_ERROR):
            raise CollectionRefusedError(f"{scope}.{collection}")
        if status != Status.OK or len(request.response_extras) != _MANIFEST_AND_COLLECTION_ID.size:
            raise ProtocolError(f"the server answered the question for a collection with status {status}")
        return int(_MANIFEST_AND_COLLECTION_ID.unpack(request.response_extras)[1])

    def close(self) -> None:
        """Disconnect."""
        self.stream.close()

    def _greet(self, deadline: float) -> None:
        wanted = struct.pack(f">{len(_FEATURES)}H", *_FEATURES)
        value = self._expect_ok(Request(Opcode.HELLO, key=_AGENT, value=wanted), "HELLO", deadline).response_value
        granted = set(struct.unpack(f">{len(value) // 2}H", value[: len(value) // 2 * 2]))
        for feature in (Feature.SELECT_BUCKET, Feature.COLLECTIONS):
            if feature not in granted:
                raise ProtocolError(f"the server does not offer {feature.name.lower().replace('_', ' ')}")

    def _log_in(self, credentials: Credentials, deadline: float, *, is_encrypted: bool) -> None:
        listed = self._expect_ok(Request(Opcode.SASL_LIST_MECHS), "its ways to log in", deadline).response_value
        mechanism = choose_mechanism(listed.decode(errors="replace"), is_encrypted=is_encrypted)
        if mechanism is None:
            raise ProtocolError("the server offers no way to log in that is safe on this connection; use couchbases://")
        name = mechanism.encode()
        if mechanism == "PLAIN":
            message = plain_message(credentials.username, credentials.password)
            self._sasl(Opcode.SASL_AUTH, name, message, deadline)
            return
        scram = ScramClient(mechanism, credentials.username, credentials.password)
        answer = self._sasl(Opcode.SASL_AUTH, name, scram.first(), deadline)
        scram.verify(self._sasl(Opcode.SASL_STEP, name, scram.final(answer), deadline))

    def _sasl(self, opcode: Opcode, mechanism: bytes, message: bytes, deadline: float) -> bytes:
        request = self.ask(Request(opcode, key=mechanism, value=message), deadline)
        if request.status in (Status.AUTH_ERROR, Status.ACCESS_DENIED, Status.NOT_FOUND, Status.AUTH_STALE):
            raise LoginRefusedError
        if request.status not in (Status.OK, Status.AUTH_CONTINUE):
            raise ProtocolError(f"the server answered a login with status {request.status}")
        return request.response_value

    def _open_bucket(self, bucket: str, deadline: float) -> None:
        request = self.ask(Request(Opcode.SELECT_BUCKET, key=bucket.encode()), deadline)
        if request.status in (Status.ACCESS_DENIED, Status.NOT_FOUND, Status.NO_BUCKET, Status.AUTH_ERROR):
            raise BucketRefusedError(bucket)
        if request.status != Status.OK:
            raise ProtocolError(f"the server answered the opening of bucket {bucket} with status {request.status}")

    def _expect_ok(self, request: Request, what: str, deadline: float) -> Request:
        if self.ask(request, deadline).status != Status.OK:
            raise ProtocolError(f"the server answered the question for {what} with status {request.status}")
        return request
