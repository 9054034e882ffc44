"""Image archives: what is written can be read, and what cannot be used is refused with the reason."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from e2e.cluster import oci
from e2e.cluster.errors import ClusterError


def archive_with_index(path: Path, index: object) -> Path:
    content = json.dumps(index).encode()
    with tarfile.open(path, "w") as tar:
        entry = tarfile.TarInfo("index.json")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return path


def test_written_archive_is_read_back(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF")
    archive = tmp_path / "image.tar"
    oci.write_archive(archive, name="localhost/test/image:1", programs={"/program": program}, entrypoint=["/program"])
    image = oci.read_archive(archive)
    assert image.name == "localhost/test/image:1"
    with tarfile.open(archive) as tar:
        blob = tar.extractfile(f"blobs/sha256/{image.digest.removeprefix('sha256:')}")
        assert blob is not None
        layer = json.loads(blob.read())["layers"][0]["digest"].removeprefix("sha256:")
        content = tar.extractfile(f"blobs/sha256/{layer}")
        assert content is not None
        with tarfile.open(fileobj=content) as files:
            assert files.getmember("program").mode == 0o755


def test_missing_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"absent\.tar"):
        oci.read_archive(tmp_path / "absent.tar")


def test_archive_without_index_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "empty.tar"
    with tarfile.open(archive, "w"):
        pass
    with pytest.raises(ClusterError, match="not a readable OCI archive"):
        oci.read_archive(archive)


def test_archive_of_two_images_is_refused(tmp_path: Path) -> None:
    archive = archive_with_index(tmp_path / "two.tar", {"manifests": [{}, {}]})
    with pytest.raises(ClusterError, match="2 images"):
        oci.read_archive(archive)


def test_short_image_name_is_refused(tmp_path: Path) -> None:
    manifest = {"digest": "sha256:0", "annotations": {"org.opencontainers.image.ref.name": "latest"}}
    archive = archive_with_index(tmp_path / "short.tar", {"manifests": [manifest]})
    with pytest.raises(ClusterError, match="'latest'"):
        oci.read_archive(archive)
