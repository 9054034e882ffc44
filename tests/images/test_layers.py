"""A layer put on top of an OCI archive: what COPY would have made, readable by every user."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster import oci
from e2e.images.layers import Tree, put_on_top

NAME = "localhost/test/image:dev"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    archive = tmp_path / "base.tar"
    oci.write_archive(archive, name="localhost/test/base:1", programs={"/bin/program": program}, entrypoint=["/x"])
    return archive


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    (folder / "bin").mkdir(parents=True)
    (folder / "empty").mkdir(mode=0o700)
    secret = folder / "private.bin"
    secret.write_bytes(os.urandom(3 << 20))
    secret.chmod(0o600)
    tool = folder / "bin" / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o700)
    (folder / "bin" / "link").symlink_to("tool")
    (folder / "linked-folder").symlink_to("bin")
    os.link(secret, folder / "twin.bin")
    return folder


def _blobs(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}  # type: ignore[union-attr]


def _blob(blobs: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    content = blobs[f"blobs/{descriptor['digest'].replace(':', '/')}"]
    assert len(content) == descriptor["size"]
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" == descriptor["digest"]
    return content


def _layers(archive: Path) -> tuple[dict[str, Any], list[bytes]]:
    """Return the configuration and the layers; every digest and size on the way is checked."""
    blobs = _blobs(archive)
    (described,) = json.loads(blobs["index.json"])["manifests"]
    manifest = json.loads(_blob(blobs, described))
    layers = [_blob(blobs, layer) for layer in manifest["layers"]]
    config: dict[str, Any] = json.loads(_blob(blobs, manifest["config"]))
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
    return config, layers


def test_the_image_keeps_what_was_below_and_gets_a_name(base: Path, tree: Path, tmp_path: Path) -> None:
    archive = tmp_path / "made.tar"
    put_on_top(base, [Tree(tree, "/opt/tree")], archive, name=NAME)
    assert oci.read_archive(archive).name == NAME
    below, made = _layers(base), _layers(archive)
    assert made[1][:-1] == below[1]
    assert made[0]["config"] == below[0]["config"]


def test_the_layer_holds_the_tree_readable_by_all(base: Path, tree: Path, tmp_path: Path) -> None:
    archive = tmp_path / "made.tar"
    put_on_top(base, [Tree(tree, "/opt/tree"), Tree(tree / "bin", "/bin2")], archive, name=NAME)
    with tarfile.open(fileobj=io.BytesIO(_layers(archive)[1][-1])) as layer:
        members = {member.name: member for member in layer}
        assert layer.extractfile("opt/tree/private.bin").read() == (tree / "private.bin").read_bytes()  # type: ignore[union-attr]
        assert layer.extractfile("opt/tree/twin.bin").read() == (tree / "private.bin").read_bytes()  # type: ignore[union-attr]
    assert {"opt", "opt/tree", "opt/tree/empty", "opt/tree/bin/tool", "bin2/tool"} <= set(members)
    assert members["opt/tree/bin/link"].linkname == "tool"
    assert members["opt/tree/linked-folder"].linkname == "bin"
    assert {(member.uid, member.gid, member.uname) for member in members.values()} == {(0, 0, "")}
    assert members["opt/tree/private.bin"].mode & 0o777 == 0o644
    assert members["opt/tree/bin/tool"].mode & 0o777 == 0o755
    assert members["opt/tree/empty"].mode & 0o777 == 0o755


def test_equal_inputs_make_an_equal_image(base: Path, tree: Path, tmp_path: Path) -> None:
    digests = set()
    for name in ("one.tar", "two.tar"):
        put_on_top(base, [Tree(tree, "/opt/tree")], tmp_path / name, name=NAME)
        digests.add(oci.read_archive(tmp_path / name).digest)
    assert len(digests) == 1
