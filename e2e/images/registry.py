"""Bring built images to a cluster: into the local node's containerd, or to a registry that a cluster pulls from."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from e2e.cluster import images as node_images
from e2e.cluster import packages
from e2e.cluster.commands import run
from e2e.images.build import build
from e2e.images.catalog import CATALOG
from e2e.images.progress import IMAGES
from e2e.images.store import Built, archive

_LOCAL_HOSTS = ("localhost", "127.", "[::1]")


@dataclass(frozen=True)
class Published:
    """An image as a cluster can name it; ``inputs`` changes when its content does."""

    reference: str
    inputs: str

    @property
    def repository(self) -> str:
        """Return the reference without its tag."""
        return self.reference.rpartition(":")[0]

    @property
    def tag(self) -> str:
        """Return the tag alone."""
        return self.reference.rpartition(":")[2]


def load_locally() -> dict[str, Published]:
    """Build what is out of date, load it onto the local node, and return it by the images' names."""
    return {entry.name: Published(node_images.load(archive(entry.name)), entry.inputs[:12]) for entry in _built()}


def publish(registry: str) -> dict[str, Published]:
    """Build what is out of date, push it to ``registry``, and return it by the images' names.

    Raises:
        ClusterError: the registry refused an image; log in first with ``skopeo login``.
    """
    if shutil.which("skopeo") is None:  # beside Docker, which builds without it
        packages.ensure(("skopeo",))
    # on this very machine, compressing takes longer than what it saves
    flags = ["--dest-tls-verify=false", "--preserve-digests"] if registry.startswith(_LOCAL_HOSTS) else []
    published = {}
    for entry in _built():
        reference = f"{registry.rstrip('/')}/{entry.name}:{entry.inputs[:12]}"
        with IMAGES.step(f"pushing {reference}"):
            run(["skopeo", "copy", "--quiet", *flags, f"oci-archive:{archive(entry.name)}", f"docker://{reference}"])
        published[entry.name] = Published(reference, entry.inputs[:12])
    return published


def _built() -> list[Built]:
    return build([each.name for each in CATALOG if each.is_default], {})
