"""SASL as the data service offers it: PLAIN and SCRAM with SHA-1, SHA-256, SHA-512 (RFC 4616, RFC 5802, RFC 7677)."""

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from functools import lru_cache

HASHES = {"SCRAM-SHA512": "sha512", "SCRAM-SHA256": "sha256", "SCRAM-SHA1": "sha1"}
MECHANISMS = (*HASHES, "PLAIN")
_ITERATIONS = 4096


class SaslError(ValueError):
    """The exchange is malformed or the proof is wrong. The text never names a secret."""


@dataclass(frozen=True)
class Credential:
    """A stored password: salted, compared in constant time, never printed."""

    password: str = field(repr=False)
    salt: bytes = field(default_factory=lambda: secrets.token_bytes(16), repr=False)

    def matches(self, password: str) -> bool:
        """Whether `password` is the stored one."""
        return hmac.compare_digest(self.password.encode(), password.encode())

    def salted(self, hash_name: str) -> bytes:
        """SaltedPassword of RFC 5802."""
        return _salted(self.password, self.salt, hash_name)


@lru_cache(maxsize=512)
def _salted(password: str, salt: bytes, hash_name: str) -> bytes:
    return hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, _ITERATIONS)


def parse_plain(message: bytes) -> tuple[str, str]:
    """User and password of a PLAIN message; raises SaslError."""
    parts = message.split(b"\0")
    if len(parts) != 3:
        raise SaslError("malformed PLAIN message")
    try:
        return parts[1].decode(), parts[2].decode()
    except UnicodeDecodeError:
        raise SaslError("PLAIN message is not UTF-8") from None


class ScramExchange:
    """Server side of one SCRAM login."""

    def __init__(self, mechanism: str) -> None:
        self._hash = HASHES[mechanism]
        self.username = ""
        self._first_bare = ""
        self._server_first = ""
        self._nonce = ""
        self._credential: Credential | None = None

    def read_client_first(self, message: bytes) -> str:
        """Take client-first, return the user name."""
        text = _text(message)
        if not text.startswith(("n,", "y,")):
            raise SaslError("channel binding is not supported")
        self._first_bare = text.split(",", 2)[2]
        fields = _fields(self._first_bare)
        if "n" not in fields or not fields.get("r"):
            raise SaslError("client-first lacks user or nonce")
        self.username = fields["n"].replace("=2C", ",").replace("=3D", "=")
        self._nonce = fields["r"] + base64.b64encode(secrets.token_bytes(18)).decode()
        return self.username

    def server_first(self, credential: Credential) -> bytes:
        """Challenge for `credential`."""
        self._credential = credential
        salt = base64.b64encode(credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={_ITERATIONS}"
        return self._server_first.encode()

    def finish(self, message: bytes) -> bytes:
        """Check client-final, return server-final; raises SaslError for a wrong proof."""
        if self._credential is None:
            raise SaslError("client-final without client-first")
        text = _text(message)
        without_proof, _, proof = text.rpartition(",p=")
        fields = _fields(without_proof)
        if fields.get("r") != self._nonce:
            raise SaslError("nonce does not match")
        salted = self._credential.salted(self._hash)
        auth_message = f"{self._first_bare},{self._server_first},{without_proof}".encode()
        client_key = self._mac(salted, b"Client Key")
        signature = self._mac(hashlib.new(self._hash, client_key).digest(), auth_message)
        expected = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        if not hmac.compare_digest(base64.b64encode(expected).decode(), proof):
            raise SaslError("wrong proof")
        verifier = self._mac(self._mac(salted, b"Server Key"), auth_message)
        return b"v=" + base64.b64encode(verifier)

    def _mac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self._hash).digest()


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise SaslError("SCRAM message is not UTF-8") from None


def _fields(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)
