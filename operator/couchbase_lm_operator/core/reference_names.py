"""The names of Secrets and ConfigMaps that a raw spec refers to: what to look at for changes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from couchbase_lm_operator import names

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECRETS = (
    ("couchbase", "adminSecretRef"),
    ("couchbase", "credentialsSecretRef"),
    ("couchbase", "tls", "caSecretRef"),
    ("model", "tokenSecretRef"),
)
_CONFIG_MAPS = (("couchbase", "tls", "caConfigMapRef"), ("model", "config", "configMapRef"))


def reference_names(resource: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (kind, name) of every object that a pass reads by name.

    The generated Secret is among them: watching Secrets would need a right on all of them.
    """
    spec = resource.get("spec") or {}
    paths = [("Secret", path) for path in _SECRETS] + [("ConfigMap", path) for path in _CONFIG_MAPS]
    found = {(kind, name) for kind, path in paths if (name := _name_at(spec, path))}
    return sorted(found | {("Secret", names.credentials_secret(str(resource["metadata"]["name"])))})


def _name_at(spec: Mapping[str, Any], path: tuple[str, ...]) -> str:
    node: Any = spec
    for part in path:
        node = node.get(part) if isinstance(node, dict) else None
    return str(node.get("name", "")) if isinstance(node, dict) else ""
