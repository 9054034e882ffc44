"""The names of Secrets and ConfigMaps that a raw spec refers to: what to look at for changes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECRETS = (
    ("couchbase", "adminSecretRef"),
    ("couchbase", "credentialsSecretRef"),
    ("couchbase", "tls", "caSecretRef"),
    ("model", "tokenSecretRef"),
)
_CONFIG_MAPS = (("couchbase", "tls", "caConfigMapRef"), ("model", "config", "configMapRef"))


def reference_names(spec: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (kind, name) of every object that a pass reads because the spec names it."""
    paths = [("Secret", path) for path in _SECRETS] + [("ConfigMap", path) for path in _CONFIG_MAPS]
    found = {(kind, name) for kind, path in paths if (name := _name_at(spec, path))}
    return sorted(found)


def _name_at(spec: Mapping[str, Any], path: tuple[str, ...]) -> str:
    node: Any = spec
    for part in path:
        node = node.get(part) if isinstance(node, dict) else None
    return str(node.get("name", "")) if isinstance(node, dict) else ""
