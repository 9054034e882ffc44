"""An image that does not fit on the node's disk is refused before anything of it is written."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from e2e.cluster import images, oci
from e2e.cluster.errors import ClusterError

Usage = namedtuple("Usage", ["total", "used", "free"])


def test_a_disk_that_is_too_full_is_told_with_what_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, archive = tmp_path / "program", tmp_path / "image.tar"
    program.write_bytes(b"\0" * 50_000_000)
    oci.write_archive(archive, name="localhost/big:1", programs={"/program": program}, entrypoint=["/program"])
    monkeypatch.setattr(images, "present", lambda *_: False)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(100e9, 99e9, 1e9))
    with pytest.raises(ClusterError, match=r"needs 2 GB under /var/lib/.* for localhost/big:1, and 1 GB are free"):
        images.load(archive)
