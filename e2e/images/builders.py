"""The two programs that build images: Docker where an engine answers, else buildah without any daemon."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from e2e.bootstrap import ROOT, cache_root
from e2e.cluster.commands import run
from e2e.engine import environment
from e2e.images.base import BASE_REFERENCE, base_archive, base_key
from e2e.images.catalog import Image
from e2e.images.dockerfile import copies_of_stage
from e2e.images.engine_files import prepare_engine_files
from e2e.images.layers import Tree, put_on_top
from e2e.images.progress import IMAGES

CA_BUNDLE: Final = Path("/etc/ssl/certs/ca-certificates.crt")
_DEBIAN_PACKAGES: Final = ("buildah", "debootstrap", "skopeo")


class Builder(Protocol):
    """Builds one target of the Dockerfile and writes it as an archive that containerd imports."""

    name: str

    def default_base(self) -> str:
        """Return the value of BASE when nobody chose one."""

    def prepare(self, base: str) -> None:
        """Bring in what every build starts from, when it is not there."""

    def build(self, image: Image, arguments: Mapping[str, str], archive: Path) -> None:
        """Build ``image`` and write ``archive``; raises ``ClusterError`` with the build's last lines."""


class Docker:
    """Builds with a Docker engine, on the public Debian image."""

    name = "docker"

    def default_base(self) -> str:
        """Return the base that the Dockerfile itself names."""
        return "debian:bookworm-slim"

    def prepare(self, base: str) -> None:
        """Do nothing: the engine pulls what a Dockerfile names."""

    def build(self, image: Image, arguments: Mapping[str, str], archive: Path) -> None:
        """Build ``image`` and save it from the engine's store."""
        run(["docker", "build", *_build_options(image, arguments), ROOT], env={**os.environ, "DOCKER_BUILDKIT": "1"})
        run(["docker", "save", "--output", archive, image.reference])


class Buildah:
    """Builds with buildah in a chroot: needs root, and neither a daemon nor a registry."""

    name = "buildah"

    def __init__(self) -> None:
        missing = [package for package in _DEBIAN_PACKAGES if not shutil.which(package)]
        if missing:
            with IMAGES.step(f"installing {', '.join(missing)} from Debian"):
                run(["apt-get", "update", "-q"])
                run(["apt-get", "install", "-q", "-y", "--no-install-recommends", *missing])

    def default_base(self) -> str:
        """Return the name of our own Debian base, whose tag is the hash of its recipe."""
        return f"{BASE_REFERENCE}:{base_key()}"

    def prepare(self, base: str) -> None:
        """Make and load our own Debian base, unless another one was chosen.

        Raises ``ClusterError`` when it cannot be made.
        """
        if base != self.default_base() or self._has(base):
            return
        pulled = run(["buildah", "pull", "--quiet", f"oci-archive:{base_archive()}"]).strip()
        run(["buildah", "tag", pulled, base])

    def build(self, image: Image, arguments: Mapping[str, str], archive: Path) -> None:
        """Build ``image`` with cached layers and write it uncompressed: it is loaded on this machine."""
        # The cache's environment points at the interpreter it was made with: the image has Debian's.
        if image.is_only_copies and environment.SYSTEM_PYTHON.exists():
            self._put_copies_on_parent(image, arguments, archive)
        else:
            self._build(image, arguments, archive)

    def _build(self, image: Image, arguments: Mapping[str, str], archive: Path) -> None:
        replaced = run(
            ["buildah", "images", "--quiet", "--no-trunc", "--filter", f"reference={image.reference}"]
        ).split()
        with _no_containers_left():
            run(
                ["buildah", "bud", "--isolation", "chroot", "--layers", *_build_options(image, arguments), ROOT],
                env={**os.environ, "BUILDAH_ISOLATION": "chroot"},
            )
        # Not `buildah push`: it always compresses into this format, minutes of work for a few seconds of use.
        source, target = f"containers-storage:{image.reference}", f"oci-archive:{archive}:{image.reference}"
        run(["skopeo", "copy", "--quiet", "--dest-oci-accept-uncompressed-layers", source, target])
        current = run(["buildah", "images", "--quiet", "--no-trunc", image.reference]).strip()
        for old in replaced:
            if old != current:
                # Nameless now. Layers that the new image is made of stay; its other layers would pile up.
                subprocess.run(["buildah", "rmi", old], capture_output=True, check=False)

    def _has(self, reference: str) -> bool:
        inspected = subprocess.run(
            ["buildah", "inspect", "--type", "image", reference], capture_output=True, check=False
        )
        return inspected.returncode == 0

    def _put_copies_on_parent(self, image: Image, arguments: Mapping[str, str], archive: Path) -> None:
        parent, copies = copies_of_stage((ROOT / "Dockerfile").read_text(), image.name)
        prepare_engine_files()
        with tempfile.TemporaryDirectory(prefix=f"{parent}-", dir=archive.parent) as folder:
            below = Path(folder) / "below.tar"
            self._build(replace(image, name=parent, reference=f"{image.reference}-system"), arguments, below)
            trees = [Tree(cache_root() / source.lstrip("/"), destination) for source, destination in copies]
            put_on_top(below, trees, archive, name=image.reference)


@contextmanager
def _no_containers_left() -> Iterator[None]:
    # A build that fails leaves the containers of its stages behind, with all their files.
    listing = ["buildah", "containers", "--quiet", "--notruncate"]
    before = set(run(listing).split())
    try:
        yield
    finally:
        for container in set(run(listing).split()) - before:
            subprocess.run(["buildah", "rm", container], capture_output=True, check=False)


def choose_builder() -> Builder:
    """Return Docker when its engine answers, else buildah, installed from Debian if it is missing."""
    if shutil.which("docker"):
        answer = subprocess.run(["docker", "info"], capture_output=True, timeout=30, check=False)
        if answer.returncode == 0:
            return Docker()
    return Buildah()


def _build_options(image: Image, arguments: Mapping[str, str]) -> list[str | Path]:
    options: list[str | Path] = ["--file", ROOT / "Dockerfile", "--target", image.name, "--tag", image.reference]
    for name in image.build_arguments:
        options += ["--build-arg", f"{name}={arguments[name]}"]
    if CA_BUNDLE.exists():
        options += ["--secret", f"id=ca_bundle,src={CA_BUNDLE}"]
    return options
