"""What it takes to talk to one cluster: credentials and TLS, kept out of every repr."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Credentials:
    """A user name and its password."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class TlsTrust:
    """Whom to trust: ``ca_pem`` beside the system's authorities, or nobody's word when verification is off."""

    ca_pem: str | None = None
    skip_verify: bool = False

    def context(self) -> ssl.SSLContext:
        """Return a client context; raises ssl.SSLError when ``ca_pem`` holds no certificate."""
        context = ssl.create_default_context()
        if self.ca_pem is not None:
            context.load_verify_locations(cadata=self.ca_pem)
        if self.skip_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context
