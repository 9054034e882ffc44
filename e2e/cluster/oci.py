"""OCI image archives: reading what one holds, and writing small ones from single programs.

Format: https://github.com/opencontainers/image-spec/blob/main/image-layout.md, as one tar file.
"""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.cluster.errors import ClusterError

_INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
_MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
_CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
_LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
_NAME_KEYS = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class ArchivedImage:
    """The image in an archive: its full name and the digest of its manifest."""

    name: str
    digest: str


def read_archive(archive: Path) -> ArchivedImage:
    """Return which image an archive holds.

    Raises:
        ClusterError: the file is missing, is no OCI archive, or does not hold exactly one image with a full name.
    """
    try:
        with tarfile.open(archive) as tar:
            member = tar.extractfile("index.json")
            index = json.loads(member.read()) if member else {}
    except (OSError, KeyError, tarfile.TarError, json.JSONDecodeError) as error:
        raise ClusterError(f"{archive} is not a readable OCI archive ({error}); build it again") from error
    manifests = index.get("manifests", [])
    if len(manifests) != 1:
        raise ClusterError(f"{archive} holds {len(manifests)} images instead of one; build it again")
    annotations = manifests[0].get("annotations", {})
    name = next((annotations[key] for key in _NAME_KEYS if key in annotations), "")
    if "/" not in name or ":" not in name:
        raise ClusterError(
            f"{archive} names its image {name!r}; push it as `oci-archive:FILE:localhost/lmcache-couchbase/NAME:TAG`"
        )
    return ArchivedImage(name, manifests[0]["digest"])


def write_archive(archive: Path, *, name: str, programs: Mapping[str, Path], entrypoint: Sequence[str]) -> None:
    """Write an image of one layer that holds these static programs under these absolute paths."""
    layer = _layer(programs)
    config = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Entrypoint": list(entrypoint), "User": "65534:65534"},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    blobs = [layer, _encoded(config)]
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST_TYPE,
        "config": _descriptor(_CONFIG_TYPE, blobs[1]),
        "layers": [_descriptor(_LAYER_TYPE, layer)],
    }
    blobs.append(_encoded(manifest))
    described = {**_descriptor(_MANIFEST_TYPE, blobs[2]), "annotations": dict.fromkeys(_NAME_KEYS, name)}
    index = {"schemaVersion": 2, "mediaType": _INDEX_TYPE, "manifests": [described]}
    files = {"oci-layout": _encoded({"imageLayoutVersion": "1.0.0"}), "index.json": _encoded(index)}
    files |= {f"blobs/sha256/{_digest(blob).removeprefix('sha256:')}": blob for blob in blobs}
    archive.parent.mkdir(parents=True, exist_ok=True)
    making = archive.with_suffix(".making")
    with tarfile.open(making, "w") as tar:
        for path, content in files.items():
            _add(tar, path, content, mode=0o644)
    making.replace(archive)


def _layer(programs: Mapping[str, Path]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, program in programs.items():
            _add(tar, path.lstrip("/"), program.read_bytes(), mode=0o755)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, path: str, content: bytes, *, mode: int) -> None:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def _descriptor(media_type: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _encoded(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True).encode()
