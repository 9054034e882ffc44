"""Images of the node: there is no registry, they are loaded from OCI archives."""

import shutil
from pathlib import Path

from e2e.cluster import containerd, golang, oci, paths
from e2e.cluster.commands import run
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import CLUSTER

# containerd keeps the layers as they came and unpacked
_ROOM_FACTOR = 2.1
# a node whose disk is fuller than this runs no new pods: see the kubelet's evictionHard
_ROOM_LEFT_SHARE = 0.02
_PAUSE_SOURCE = Path(__file__).with_name("pause")


def present(name: str, digest: str | None = None) -> bool:
    """Tell whether the node has an image of this name, with this manifest digest if one is given."""
    return any(found == name and digest in (None, known) for found, known in _known(f"name=={name}"))


def load(archive: Path) -> str:
    """Bring the image of an OCI archive onto the node unless that very image is there, and return its name.

    Raises:
        ClusterError: the archive is unusable, the disk too full, or containerd does not run or refused it.
    """
    image = oci.read_archive(archive)
    if not present(image.name, image.digest):
        _require_room(image.name, archive.stat().st_size)
        with CLUSTER.step(f"loading {image.name} ({archive.stat().st_size / 1e6:.0f} MB)"):
            _import(archive, image)
    return image.name


def load_pause() -> None:
    """Build the image of the pods' first process into the cache if need be, and load it."""
    archive = paths.images() / "pause-1.tar"
    if not archive.exists():
        build_program_image(_PAUSE_SOURCE, archive, name=containerd.PAUSE_IMAGE, program="/pause")
    load(archive)


def build_program_image(source: Path, archive: Path, *, name: str, program: str) -> None:
    """Build the Go program in a folder and write an image that holds nothing else.

    Raises:
        ClusterError: the program does not build.
    """
    go = golang.ensure()
    built = archive.resolve().with_suffix(".program")
    archive.parent.mkdir(parents=True, exist_ok=True)
    files = sorted(file.name for file in source.glob("*.go"))
    run([go.program, "build", "-trimpath", "-ldflags", "-s -w", "-o", built, *files], env=go.environment(), cwd=source)
    oci.write_archive(archive, name=name, programs={program: built}, entrypoint=[program])
    built.unlink()


def _require_room(name: str, archive_bytes: int) -> None:
    disk = shutil.disk_usage(paths.DATA)
    needed_bytes = archive_bytes * _ROOM_FACTOR + disk.total * _ROOM_LEFT_SHARE
    if disk.free < needed_bytes:
        raise ClusterError(
            f"The node needs {needed_bytes / 1e9:.0f} GB under {paths.DATA} for {name}, and {disk.free / 1e9:.0f} GB "
            "are free: make room there and run this again."
        )


def _import(archive: Path, image: oci.ArchivedImage) -> None:
    # containerd 1.6 keeps a name from the reference annotation only below a given base name.
    replaced = [digest for name, digest in _known(f"name=={image.name}") if name == image.name]
    containerd.ctr("images", "import", "--base-name", image.name.rpartition(":")[0], archive)
    # The kubelet collects no images here; what nothing but an id refers to would stay on the disk for ever.
    for digest in replaced:
        unnamed = [name for name, known in _known(f"target.digest=={digest}") if known == digest]
        if unnamed and all(name.startswith("sha256:") for name in unnamed):
            containerd.ctr("images", "remove", *unnamed)


def _known(query: str) -> list[tuple[str, str]]:
    # Columns: REF TYPE DIGEST SIZE PLATFORMS LABELS
    rows = (line.split() for line in containerd.ctr("images", "list", query).splitlines()[1:])
    return [(row[0], row[2]) for row in rows]
