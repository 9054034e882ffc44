"""The few requests the local node makes to its own API server, as its administrator."""

import http.client
import json
import ssl
import urllib.request
from typing import Any

from e2e.cluster import binaries, configuration, paths, pki
from e2e.cluster.commands import run


def is_ready() -> bool:
    """Tell whether the API server answers and calls itself ready."""
    try:
        return _request("/readyz") == b"ok"
    except (OSError, http.client.HTTPException):
        return False


def get(path: str) -> dict[str, Any] | None:
    """Return one object or list, or None when there is none or the API server does not answer."""
    try:
        document: dict[str, Any] = json.loads(_request(path))
    except (OSError, http.client.HTTPException):
        return None
    return document


def apply(manifests: str) -> None:
    """Apply YAML documents by server-side apply.

    Raises:
        ClusterError: the API server refused one of them.
    """
    options = ("--server-side", "--force-conflicts", "--field-manager", paths.NETWORK_NAME)
    run(
        [
            binaries.path("kubectl"),
            "--kubeconfig",
            configuration.kubeconfig_of(pki.ADMIN),
            "apply",
            *options,
            "-f",
            "-",
        ],
        stdin=manifests,
        timeout_seconds=60,
    )


def _request(path: str) -> bytes:
    context = ssl.create_default_context(cafile=str(pki.AUTHORITY.certificate))
    context.load_cert_chain(pki.ADMIN.certificate, pki.ADMIN.key)
    # Without proxies: the address is the machine's own.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    with opener.open(f"{paths.API_URL}{path}", timeout=3) as response:
        body: bytes = response.read()
    return body
