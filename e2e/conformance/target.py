"""What the suite runs against: emulators of several shapes, or the real cluster named in the environment."""

import json
import os
import secrets
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.options import ClusterOptions
from couchbase.transcoder import RawBinaryTranscoder

from e2e.couchbase_emulator import running_emulator

_EMULATED: dict[str, dict[str, Any]] = {
    "emulator": {"nodes": 1},
    "emulator-3-nodes": {"nodes": 3},
    "emulator-tls": {"nodes": 2, "tls": True},
}


@dataclass(frozen=True)
class Target:
    """A cluster under test."""

    connection_string: str
    management_url: str
    username: str
    password: str
    ca_path: Path | None = None

    @property
    def tls(self) -> bool:
        """Whether clients connect over TLS."""
        return self.connection_string.startswith("couchbases://")

    def http(self, username: str | None = None, password: str | None = None) -> httpx.Client:
        """Client of the management interface, as administrator unless told otherwise."""
        auth = (username or self.username, self.password if password is None else password)
        return httpx.Client(base_url=self.management_url, auth=auth, verify=self.tls_context() or True, timeout=60)

    @contextmanager
    def cluster(self, username: str | None = None, password: str | None = None) -> Iterator[Cluster]:
        """SDK connection, as administrator unless told otherwise; closed after the block."""
        authenticator = PasswordAuthenticator(
            username or self.username,
            self.password if password is None else password,
            cert_path=str(self.ca_path) if self.ca_path else None,
        )
        options = ClusterOptions(authenticator, transcoder=RawBinaryTranscoder(), enable_compression=False)
        cluster = Cluster(self.connection_string, options)
        try:
            yield cluster
        finally:
            cluster.close()

    def tls_context(self) -> ssl.SSLContext | None:
        """TLS context that trusts the cluster, or None without TLS."""
        if not self.tls:
            return None
        return ssl.create_default_context(cafile=str(self.ca_path) if self.ca_path else None)


def target_names() -> list[str]:
    """Targets of this run."""
    return ["real"] if "COUCHBASE_URL" in os.environ else list(_EMULATED)


@contextmanager
def open_target(name: str) -> Iterator[Target]:
    """The target of that name, for as long as the block runs."""
    if name == "real":
        yield _real_target()
        return
    with running_emulator(**_EMULATED[name]) as emulator:
        if emulator.tls_connection_string:
            connection_string, management_url = emulator.tls_connection_string, emulator.tls_management_urls[0]
        else:
            connection_string, management_url = emulator.connection_string, emulator.management_urls[0]
        yield Target(
            connection_string,
            management_url,
            emulator.admin_username,
            emulator.admin_password,
            emulator.ca_path if emulator.tls_connection_string else None,
        )


@contextmanager
def open_separate_target() -> Iterator[Target]:
    """The real cluster, or an emulator in a process of its own.

    For what the SDK does while it holds Python's lock: an emulator in this process could not answer meanwhile.
    """
    if "COUCHBASE_URL" in os.environ:
        yield _real_target()
        return
    password = secrets.token_hex(16)
    command = [sys.executable, "-m", "e2e.couchbase_emulator", "--nodes", "3", "--mgmt-port", "0", "--kv-port", "0"]
    environment = {**os.environ, "COUCHBASE_EMULATOR_PASSWORD": password}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            described = json.loads(process.stdout.readline() if process.stdout else "")
            yield Target(described["connectionString"], described["management"][0], described["username"], password)
        finally:
            process.terminate()


def _real_target() -> Target:
    """From COUCHBASE_URL (`couchbase://`, `couchbases://`, `http://` or `https://`), user, password and CA file."""
    url = urlsplit(os.environ["COUCHBASE_URL"])
    if url.scheme not in ("couchbase", "couchbases", "http", "https") or not url.hostname:
        raise ValueError("COUCHBASE_URL must look like couchbase://host, couchbases://host or http://host:8091")
    tls = url.scheme in ("couchbases", "https")
    ca_file = os.environ.get("COUCHBASE_CA_FILE")
    given_management = url.scheme.startswith("http") and url.port is not None
    management_port = url.port if given_management else (18091 if tls else 8091)
    data_port = "" if url.scheme.startswith("http") or url.port is None else f":{url.port}"
    return Target(
        f"{'couchbases' if tls else 'couchbase'}://{url.hostname}{data_port}",
        f"{'https' if tls else 'http'}://{url.hostname}:{management_port}",
        os.environ["COUCHBASE_USERNAME"],
        os.environ["COUCHBASE_PASSWORD"],
        Path(ca_file) if ca_file else None,
    )
