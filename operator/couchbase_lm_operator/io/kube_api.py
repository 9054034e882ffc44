"""HTTP to the Kubernetes API server: JSON in, JSON out, errors as our exceptions.

Built on the request layer of the official asynchronous client (authentication, TLS, token renewal), with
our own short table of paths: the operator uses ten kinds, so no discovery is needed, and what RBAC must
grant can be read off this file.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import aiohttp
from kubernetes.aio import client, config

from couchbase_lm_operator import names
from couchbase_lm_operator.errors import ClusterBusyError, SettingsError, cluster_error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

JSON = "application/json"
APPLY_PATCH = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

_REQUEST_TIMEOUT_SECONDS = 30.0
# every name of the kinds below; never one that leads out of its own collection
_SEGMENT = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Kind:
    """Where the API server serves a kind."""

    name: str
    api_version: str
    plural: str
    is_namespaced: bool = True

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of a collection, an object or a subresource; no namespace means all of them.

        Raises:
            ValueError: a name that would lead to another path; no object has such a name.
        """
        root = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        parts = [root]
        if self.is_namespaced and namespace:
            parts += ["namespaces", _segment(namespace)]
        parts.append(self.plural)
        parts += [_segment(part) for part in (name, subresource) if part]
        return "/".join(parts)


def _segment(text: str) -> str:
    if not _SEGMENT.fullmatch(text) or text in {".", ".."}:
        raise ValueError(f"{text!r} is not the name of an object")
    return text


KINDS = {
    kind.name: kind
    for kind in (
        Kind(names.KIND, names.API_VERSION, names.PLURAL),
        Kind("Deployment", "apps/v1", "deployments"),
        Kind("ControllerRevision", "apps/v1", "controllerrevisions"),
        Kind("Service", "v1", "services"),
        Kind("Secret", "v1", "secrets"),
        Kind("ConfigMap", "v1", "configmaps"),
        Kind("Pod", "v1", "pods"),
        Kind("Event", "v1", "events"),
        Kind("Namespace", "v1", "namespaces", is_namespaced=False),
    )
}


class KubeApi:
    """One connection pool to one API server; use as an asynchronous context manager."""

    def __init__(self, kubeconfig: Path | None = None) -> None:
        self._kubeconfig = kubeconfig
        self._client: Any = None

    async def __aenter__(self) -> Self:
        """Load the kubeconfig, or the service account when there is none.

        Raises:
            SettingsError: neither can be read.
        """
        configuration = client.Configuration()
        loader: Any = config  # the official client is not typed
        try:
            if self._kubeconfig is None:
                loader.load_incluster_config(client_configuration=configuration)
            else:
                await loader.load_kube_config(str(self._kubeconfig), client_configuration=configuration)
        except (config.ConfigException, OSError) as error:
            source = self._kubeconfig or "the pod's service account"
            raise SettingsError(f"cannot read the Kubernetes credentials from {source}: {error}") from error
        self._client = client.ApiClient(configuration)
        self._client.user_agent = f"{names.FIELD_MANAGER}/{names.VERSION}"
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    @property
    def server(self) -> str:
        """Return the URL of the API server."""
        return str(self._require_client().configuration.host)

    async def connection_facts(self) -> dict[str, Any]:
        """Return address, CA and credentials as the fields of ``kopf.ConnectionInfo``."""
        configuration = self._require_client().configuration
        header = (await configuration.auth_settings()).get("BearerToken", {}).get("value", "")
        # "Bearer …" from a kubeconfig, "bearer …" from a service account
        token = header.partition(" ")[2].strip()
        return {
            "server": configuration.host,
            "ca_path": configuration.ssl_ca_cert,
            "insecure": not configuration.verify_ssl,
            "certificate_path": configuration.cert_file,
            "private_key_path": configuration.key_file,
            "scheme": "Bearer" if token else None,
            "token": token or None,
        }

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: object = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> dict[str, Any]:
        """Send one request and return the decoded answer.

        Raises:
            ClusterError: the fitting subclass for every answer that is not 2xx, and for no answer.
        """
        what = f"{method} {path}"
        try:
            response = await self._send(
                method,
                path,
                query=query,
                body=body,
                content_type=content_type,
                accept=accept,
                time_limit=_REQUEST_TIMEOUT_SECONDS,
            )
            content = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ClusterBusyError(
                what, 0, "NoAnswer", f"the API server did not answer: {type(error).__name__}"
            ) from error
        return _decoded(what, int(response.status), content)

    async def stream(self, path: str, *, query: dict[str, str], silence_seconds: float) -> AsyncIterator[Any]:
        """Yield the JSON lines of a watch until the server ends it.

        Raises:
            ClusterError: the watch was refused, broke, or was silent for longer than ``silence_seconds``.
        """
        what = f"WATCH {path}"
        limits = aiohttp.ClientTimeout(total=None, sock_connect=_REQUEST_TIMEOUT_SECONDS, sock_read=silence_seconds)
        try:
            response = await self._send("GET", path, query={**query, "watch": "true"}, time_limit=limits)
            if int(response.status) != 200:
                _decoded(what, int(response.status), await response.read())
            try:
                async for line in response.response.content:
                    if line.strip():
                        yield json.loads(line)
            finally:
                response.response.close()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise ClusterBusyError(what, 0, "NoAnswer", f"the watch broke: {type(error).__name__}") from error

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None,
        time_limit: float | aiohttp.ClientTimeout,
        body: object = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Any:
        api = self._require_client()
        method, url, headers, sent_body, _ = await api.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params={"Accept": accept, "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        return await api.call_api(method, url, headers, body=sent_body, _request_timeout=time_limit)

    def _require_client(self) -> Any:
        if self._client is None:
            raise RuntimeError("KubeApi is used outside of its context")
        return self._client


def _decoded(what: str, status: int, content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content) if content else {}
    except ValueError:
        document = {}
    if not isinstance(document, dict):
        document = {}
    if 200 <= status < 300:
        return document
    reason = str(document.get("reason") or "Unknown")
    raise cluster_error(what, status, reason, str(document.get("message") or "the API server gave no message"))
