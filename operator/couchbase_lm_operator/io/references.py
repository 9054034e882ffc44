"""Secrets and ConfigMaps that a resource names: their values, or in words why there are none."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from couchbase_lm_operator.core.observed import Missing, SecretValue, Unread
from couchbase_lm_operator.errors import ClusterRefusedError
from couchbase_lm_operator.io.namespaces import FORBIDDEN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from couchbase_lm_operator.io.cluster import Cluster


UNREADABLE = "unreadable"


async def version(cluster: Cluster, kind: str, namespace: str, name: str) -> str:
    """Return the version of an object that a resource names: "" when it is missing, else what may change.

    An object that the operator may not read has the version ``UNREADABLE``, so that it is news once it may.

    Raises:
        ClusterError: the API server did not answer.
    """
    try:
        return await cluster.resource_version(kind, namespace, name)
    except ClusterRefusedError as error:
        if error.status != FORBIDDEN:
            raise
        return UNREADABLE


async def secret_values(
    cluster: Cluster, namespace: str, name: str, keys: Iterable[str], field: str
) -> SecretValue | Missing | Unread:
    """Return the wanted keys of a Secret; ``field`` is the path of the spec that names it.

    Raises:
        ClusterBusyError: the API server did not answer.
    """
    try:
        secret = await cluster.get("Secret", namespace, name)
    except ClusterRefusedError as error:
        return Unread(f"Secret {name} of {field}", f"the API server answered {error.reason}")
    if secret is None:
        return Missing(f"Secret {name} of {field}")
    data = secret.get("data") or {}
    values = {}
    for key in keys:
        text = _decoded(data.get(key, ""))
        if not text:
            return Missing(f"key {key} in Secret {name} of {field}")
        values[key] = text
    return SecretValue(name, str(secret["metadata"]["resourceVersion"]), values)


async def config_map_text(cluster: Cluster, namespace: str, name: str, key: str, field: str) -> str | Missing | Unread:
    """Return one key of a ConfigMap.

    Raises:
        ClusterBusyError: the API server did not answer.
    """
    try:
        config_map = await cluster.get("ConfigMap", namespace, name)
    except ClusterRefusedError as error:
        return Unread(f"ConfigMap {name} of {field}", f"the API server answered {error.reason}")
    if config_map is None:
        return Missing(f"ConfigMap {name} of {field}")
    text = (config_map.get("data") or {}).get(key)
    if text is None:
        text = _decoded((config_map.get("binaryData") or {}).get(key, ""))
    return str(text) if text else Missing(f"key {key} in ConfigMap {name} of {field}")


def _decoded(value: str) -> str:
    try:
        return base64.b64decode(value, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
