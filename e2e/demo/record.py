"""What the demo itself created, on record: one file for each cluster, known by its identity and not by its address.

A kubeconfig may lead elsewhere tomorrow, and a node that is made anew answers at the old address. The UID of
the namespace ``kube-system`` is made with a cluster and dies with it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from e2e.bootstrap import ROOT
from e2e.demo.kube import DemoError, Kube

FOLDER = ROOT / ".local" / "demo"
RECORDS = FOLDER / "made"
_NODE_MARK = FOLDER / "starts-node"


@dataclass
class Made:
    """What was not there before; without a ``file`` it is remembered by its holder alone, as tests do.

    ``crd_uid`` is that of the definition that the demo brought in: another one of that name is somebody else's.
    """

    cluster: str = ""
    kubeconfig: str = ""
    is_local: bool = False
    started_node: bool = False
    namespaces: list[str] = field(default_factory=list)
    crd_uid: str = ""
    file: Path | None = None

    def save(self) -> None:
        """Write the record at once: a killed run must not forget what it made."""
        if self.file is None:
            return
        self.file.parent.mkdir(parents=True, exist_ok=True)
        content: dict[str, Any] = {name: value for name, value in asdict(self).items() if name != "file"}
        self.file.write_text(json.dumps(content, indent=2) + "\n")

    def forget(self) -> None:
        """Drop the record once nothing of it is left."""
        if self.file is not None:
            self.file.unlink(missing_ok=True)


def identity(kube: Kube) -> str:
    """Return the UID of the cluster's ``kube-system``.

    Raises:
        DemoError: the cluster does not answer, or does not let the caller read that namespace.
    """
    namespace = kube.get("namespace", "kube-system")
    if namespace is None:
        raise DemoError(f"the cluster of {kube.kubeconfig} has no namespace kube-system: it cannot be told from others")
    return str(namespace["metadata"]["uid"])


def of_cluster(kube: Kube, *, is_local: bool, folder: Path = RECORDS) -> Made:
    """Return the record of the cluster that ``kube`` reaches now, or a new one."""
    cluster = identity(kube)
    file = folder / f"{cluster}.json"
    made = _read(file) if file.exists() else Made(cluster=cluster, file=file)
    made.kubeconfig, made.is_local = str(kube.kubeconfig.absolute()), is_local
    return made


def all_records(folder: Path = RECORDS) -> list[Made]:
    """Return the records of all clusters that still hold something of a demo."""
    return [_read(file) for file in sorted(folder.glob("*.json"))]


def mark_node_start() -> None:
    """Remember that the local node is being started for the demo, before it has an identity."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    _NODE_MARK.touch()


def is_node_start_marked() -> bool:
    """Say whether a start of the node for the demo has not come as far as its record."""
    return _NODE_MARK.exists()


def clear_node_start() -> None:
    """Drop the mark: the record of the node's cluster says it from here on, or the node is gone."""
    _NODE_MARK.unlink(missing_ok=True)


def _read(file: Path) -> Made:
    try:
        return Made(**json.loads(file.read_text()), file=file)
    except (ValueError, TypeError) as error:
        raise DemoError(f"{file} is no record of what the demo made ({error}): look at it, then remove it") from error
