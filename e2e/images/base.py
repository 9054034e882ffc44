"""The base image where no registry can be asked: Debian 12 from its own archive, by debootstrap."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Final

from e2e.bootstrap import cache_root
from e2e.cluster.commands import run
from e2e.images.progress import IMAGES

SUITE: Final = "bookworm"
PACKAGES: Final = ("ca-certificates", "python3")
BASE_REFERENCE: Final = "localhost/lmcache-couchbase/base"
# Raise it when the recipe below changes: it is part of the archive's name.
_RECIPE: Final = 1
_NEEDLESS: Final = (
    "var/cache/apt",
    "var/lib/apt/lists",
    "var/log",
    "usr/share/doc",
    "usr/share/locale",
    "usr/share/man",
)


def base_key() -> str:
    """Return the twelve hex digits that name this recipe of the base image."""
    return hashlib.sha256(repr((SUITE, PACKAGES, _RECIPE)).encode()).hexdigest()[:12]


def base_archive() -> Path:
    """Return the OCI archive of the base image, made first if it is not in the cache.

    Raises ``ClusterError`` when debootstrap or buildah fail. Needs root.
    """
    archive = cache_root() / "images" / f"base-{SUITE}-{base_key()}.tar"
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        with IMAGES.step(f"base image: Debian {SUITE} from its package archive (about a minute)"):
            _make(archive)
    return archive


def _make(archive: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="base-", dir=archive.parent) as folder:
        tree, layer, partial = Path(folder) / "tree", Path(folder) / "layer.tar", Path(folder) / "base.tar"
        run(["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, tree])
        for needless in _NEEDLESS:
            # Emptied, not removed: apt and dpkg expect the folders.
            run(["find", tree / needless, "-mindepth", "1", "-not", "-type", "d", "-delete"])
        # As a tar, because owners and modes have to survive: a copied folder would become root's.
        run(["tar", "--numeric-owner", "--directory", tree, "--create", "--file", layer, "."])
        container = run(["buildah", "from", "scratch"]).strip()
        try:
            run(["buildah", "add", "--quiet", container, layer, "/"])
            run(["buildah", "config", "--cmd", "bash", container])
            image = run(["buildah", "commit", "--quiet", "--disable-compression", container]).strip()
        finally:
            run(["buildah", "rm", container])
        try:
            run(["buildah", "push", "--quiet", "--disable-compression", image, f"oci-archive:{partial}"])
        finally:
            run(["buildah", "rmi", image])
        partial.replace(archive)
