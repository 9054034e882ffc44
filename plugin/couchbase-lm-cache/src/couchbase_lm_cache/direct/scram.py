"""The client's side of SASL: SCRAM (RFC 5802, RFC 7677) and PLAIN (RFC 4616).

SCRAM never sends the password and proves that the server knows it too. PLAIN sends it, so it is only
used where TLS has proved who the server is.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets

from couchbase_lm_cache.direct.wire import ProtocolError

_DIGESTS = {"SCRAM-SHA512": "sha512", "SCRAM-SHA256": "sha256", "SCRAM-SHA1": "sha1"}
"""Strongest first; the names are Couchbase's."""

_MAX_ITERATIONS = 1_000_000
"""A server that asks for more would hold us for seconds; Couchbase's own limit is far below."""


def choose_mechanism(offered: str, *, is_encrypted: bool) -> str | None:
    """Pick from a server's list; None when nothing in it is safe on this connection."""
    names = offered.split()
    if is_encrypted and "PLAIN" in names:
        # Also serves users that the server cannot check with SCRAM (LDAP, PAM).
        return "PLAIN"
    return next((name for name in _DIGESTS if name in names), None)


def plain_message(username: str, password: str) -> bytes:
    """Return the only message of PLAIN."""
    return f"\0{username}\0{password}".encode()


class ScramClient:
    """One login with SCRAM.

    Args:
        mechanism: a name that :func:`choose_mechanism` returned.
        username: user.
        password: its password.
        nonce: for tests; random when left out.
    """

    def __init__(self, mechanism: str, username: str, password: str, nonce: str | None = None) -> None:
        self._digest = _DIGESTS[mechanism]
        self._password = password.encode()
        self._nonce = nonce or secrets.token_urlsafe(24)
        escaped = username.replace("=", "=3D").replace(",", "=2C")
        self._client_first = f"n={escaped},r={self._nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        """Return the first message."""
        return f"n,,{self._client_first}".encode()

    def final(self, server_first: bytes) -> bytes:
        """Return the second message, which proves that we know the password.

        Raises:
            ProtocolError: the server's message is none, or is not an answer to ours.
        """
        fields = _fields(server_first)
        try:
            nonce, iterations = fields["r"], int(fields["i"])
            salt = base64.b64decode(fields["s"], validate=True)
        except (KeyError, ValueError, binascii.Error):
            raise ProtocolError("the first SCRAM message of the server is malformed") from None
        if not nonce.startswith(self._nonce) or not 0 < iterations <= _MAX_ITERATIONS:
            raise ProtocolError("the first SCRAM message of the server does not belong to this login")
        salted = hashlib.pbkdf2_hmac(self._digest, self._password, salt, iterations)
        client_key = self._mac(salted, b"Client Key")
        without_proof = f"c=biws,r={nonce}"
        messages = f"{self._client_first},{server_first.decode()},{without_proof}".encode()
        signature = self._mac(hashlib.new(self._digest, client_key).digest(), messages)
        proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
        self._server_signature = self._mac(self._mac(salted, b"Server Key"), messages)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """Check that the server knows the password too.

        Raises:
            ProtocolError: it does not.
        """
        try:
            signature = base64.b64decode(_fields(server_final)["v"], validate=True)
        except (KeyError, ValueError, binascii.Error):
            signature = b""
        if not self._server_signature or not hmac.compare_digest(signature, self._server_signature):
            raise ProtocolError("the server could not prove that it knows the password")

    def _mac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._digest)


def _fields(message: bytes) -> dict[str, str]:
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError:
        raise ProtocolError("a SCRAM message is not text") from None
    return {part[0]: part[2:] for part in parts if part[1:2] == "="}
