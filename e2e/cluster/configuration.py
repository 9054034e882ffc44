"""Configuration files of the components, written whole or not at all."""

import base64
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster import paths
from e2e.cluster.pki import AUTHORITY, Identity


def write_text(path: Path, text: str, *, mode: int = 0o600) -> Path:
    """Write a file in one step and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        os.fchmod(file.fileno(), mode)
    Path(temporary).replace(path)
    return path


def write_yaml(name: str, document: dict[str, Any]) -> Path:
    """Write a component's configuration file and return its path."""
    return write_text(paths.CONFIG / name, yaml.safe_dump(document, sort_keys=False))


def write_json(path: Path, document: dict[str, Any]) -> Path:
    """Write a JSON file and return its path."""
    return write_text(path, json.dumps(document, indent=2) + "\n")


def kubeconfig_of(identity: Identity) -> Path:
    """Return where the kubeconfig of a component lies."""
    return paths.CONFIG / f"{identity.file}.kubeconfig"


def write_kubeconfig(identity: Identity, path: Path | None = None) -> Path:
    """Write a self-contained kubeconfig (mode 0600) for this identity and return its path."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": paths.NETWORK_NAME,
                "cluster": {
                    "server": paths.API_URL,
                    "certificate-authority-data": _encoded(AUTHORITY.certificate),
                },
            }
        ],
        "users": [
            {
                "name": identity.file,
                "user": {
                    "client-certificate-data": _encoded(identity.certificate),
                    "client-key-data": _encoded(identity.key),
                },
            }
        ],
        "contexts": [{"name": paths.NETWORK_NAME, "context": {"cluster": paths.NETWORK_NAME, "user": identity.file}}],
        "current-context": paths.NETWORK_NAME,
    }
    text = yaml.safe_dump(document, sort_keys=False)
    return write_text(path or kubeconfig_of(identity), text)


def _encoded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
