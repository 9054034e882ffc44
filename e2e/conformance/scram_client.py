"""Client side of SCRAM (RFC 5802), apart from any server code, so that both sides check each other."""

import base64
import hashlib
import hmac
import secrets

HASHES = {"SCRAM-SHA512": "sha512", "SCRAM-SHA256": "sha256", "SCRAM-SHA1": "sha1"}


class ScramClient:
    """One login."""

    def __init__(self, mechanism: str, username: str, password: str) -> None:
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = base64.b64encode(secrets.token_bytes(18)).decode()
        self._first_bare = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={self._nonce}"
        self._verifier = b""

    def first(self) -> bytes:
        """client-first."""
        return b"n,," + self._first_bare.encode()

    def final(self, server_first: bytes) -> bytes:
        """client-final; raises ValueError when the server did not continue our nonce."""
        text = server_first.decode()
        fields = dict(part.split("=", 1) for part in text.split(","))
        if not fields["r"].startswith(self._nonce):
            raise ValueError("the server changed our nonce")
        salt = base64.b64decode(fields["s"])
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, int(fields["i"]))
        without_proof = f"c=biws,r={fields['r']}"
        message = f"{self._first_bare},{text},{without_proof}".encode()
        client_key = self._mac(salted, b"Client Key")
        signature = self._mac(hashlib.new(self._hash, client_key).digest(), message)
        proof = bytes(key ^ sign for key, sign in zip(client_key, signature, strict=True))
        self._verifier = base64.b64encode(self._mac(self._mac(salted, b"Server Key"), message))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """Check that the server knows the password as well; raises ValueError."""
        if server_final != b"v=" + self._verifier:
            raise ValueError("the server's signature is wrong")

    def _mac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self._hash).digest()
