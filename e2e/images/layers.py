"""Put folders that exist already on top of an image, as one more layer of its OCI archive.

It does what ``COPY`` lines do, for trees of several gigabytes: a builder copies, packs, hashes and unpacks such a
tree four times over, here it is read once and written once.
Format: https://github.com/opencontainers/image-spec, image-layout.md, manifest.md and config.md; one tar file.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

_LAYER_TYPE: Final = "application/vnd.oci.image.layer.v1.tar"
_NAME_KEY: Final = "org.opencontainers.image.ref.name"
_COPY_BYTES: Final = 1 << 20
_BLOCK_BYTES: Final = tarfile.BLOCKSIZE


@dataclass(frozen=True)
class Tree:
    """A folder on this machine and the absolute path that its content gets in the image."""

    source: Path
    destination: str


def put_on_top(base: Path, trees: Sequence[Tree], archive: Path, *, name: str) -> None:
    """Write ``archive``: the image of archive ``base`` under ``name`` with ``trees`` in a layer above it.

    Everything in the layer belongs to root and is readable by all. Raises ``OSError`` for a tree that cannot be
    read and ``KeyError`` when ``base`` is no OCI archive of one image.
    """
    with tarfile.open(base) as below, archive.open("wb+") as output:
        (described,) = _document(below, "index.json")["manifests"]
        manifest = _document(below, _blob_path(described["digest"]))
        config = _document(below, _blob_path(manifest["config"]["digest"]))
        for layer in manifest["layers"]:
            _copy_blob(below, layer["digest"], output)
        added = _write_layer(trees, output)
        manifest["layers"].append(added)
        config["rootfs"]["diff_ids"].append(added["digest"])
        config.setdefault("history", []).append({"created_by": _history(trees)})
        manifest["config"] |= _write_blob(output, config)
        described |= {**_write_blob(output, manifest), "annotations": {_NAME_KEY: name}}
        _write_file(output, "oci-layout", _encoded({"imageLayoutVersion": "1.0.0"}))
        _write_file(output, "index.json", _encoded({"schemaVersion": 2, "manifests": [described]}))
        output.write(bytes(2 * _BLOCK_BYTES))


class _HashingWriter:
    """Counts and hashes what goes through it into a file."""

    def __init__(self, output: IO[bytes]) -> None:
        self._output = output
        self._hash = hashlib.sha256()
        self.count_bytes = 0

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        self.count_bytes += len(data)
        return self._output.write(data)

    def tell(self) -> int:
        return self.count_bytes

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"


def _write_layer(trees: Sequence[Tree], output: IO[bytes]) -> dict[str, Any]:
    # The entry's header carries the digest of what follows: its place is kept and filled in afterwards.
    start = output.tell()
    output.write(bytes(_BLOCK_BYTES))
    writer = _HashingWriter(output)
    with tarfile.TarFile(
        fileobj=writer,  # type: ignore[arg-type]  # it asks for no more than write() and tell()
        mode="w",
        format=tarfile.GNU_FORMAT,
        copybufsize=_COPY_BYTES,
    ) as layer:
        for tree in trees:
            for path, entry in _entries(tree, layer):
                if entry.isreg():
                    with path.open("rb") as content:
                        layer.addfile(entry, content)
                else:
                    layer.addfile(entry)
    _pad(output, writer.count_bytes)
    end = output.tell()
    output.seek(start)
    output.write(_header(_blob_path(writer.digest), writer.count_bytes))
    output.seek(end)
    return {"mediaType": _LAYER_TYPE, "digest": writer.digest, "size": writer.count_bytes}


def _entries(tree: Tree, layer: tarfile.TarFile) -> Iterator[tuple[Path, tarfile.TarInfo]]:
    root = tree.destination.strip("/")
    for parent in reversed(Path(root).parents[:-1]):
        yield tree.source, _entry(layer, tree.source, parent)
    for folder, folders, files in os.walk(tree.source):
        folders.sort()
        inside = Path(root) / Path(folder).relative_to(tree.source)
        yield Path(folder), _entry(layer, Path(folder), inside)
        links = [each for each in folders if (Path(folder) / each).is_symlink()]
        for file in sorted(files + links):
            path = Path(folder) / file
            yield path, _entry(layer, path, inside / file)


def _entry(layer: tarfile.TarFile, path: Path, name: Path) -> tarfile.TarInfo:
    entry = layer.gettarinfo(path, str(name))
    # Two names of one file in the source are two files in the image: the cache of an installer must not show.
    if entry.islnk():
        entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", path.stat().st_size
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = int(entry.mtime)
    entry.mode |= 0o555 if entry.isdir() or entry.mode & 0o100 else 0o444
    return entry


def _copy_blob(source: tarfile.TarFile, digest: str, output: IO[bytes]) -> None:
    member = source.getmember(_blob_path(digest))
    output.write(_header(member.name, member.size))
    content = source.extractfile(member)
    while content and (piece := content.read(_COPY_BYTES)):
        output.write(piece)
    _pad(output, member.size)


def _write_blob(output: IO[bytes], document: Mapping[str, Any]) -> dict[str, Any]:
    content = _encoded(document)
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    _write_file(output, _blob_path(digest), content)
    return {"digest": digest, "size": len(content)}


def _write_file(output: IO[bytes], path: str, content: bytes) -> None:
    output.write(_header(path, len(content)) + content)
    _pad(output, len(content))


def _header(path: str, size_bytes: int) -> bytes:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = size_bytes, 0o644
    return entry.tobuf(tarfile.GNU_FORMAT)


def _pad(output: IO[bytes], size_bytes: int) -> None:
    output.write(bytes(-size_bytes % _BLOCK_BYTES))


def _document(archive: tarfile.TarFile, path: str) -> dict[str, Any]:
    content = archive.extractfile(path) or io.BytesIO(b"{}")
    loaded: dict[str, Any] = json.loads(content.read())
    return loaded


def _blob_path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _encoded(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def _history(trees: Sequence[Tree]) -> str:
    return "; ".join(f"COPY {tree.source.name} {tree.destination}" for tree in trees)
