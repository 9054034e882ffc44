"""The digest of everything that an image is made of: equal inputs, no build."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from e2e.bootstrap import ROOT
from e2e.images.catalog import Image
from e2e.images.dockerfile import lines_of_target

_NEVER_COPIED = frozenset({"__pycache__", "tests", "dist"})


def inputs_digest(image: Image, build_arguments: Mapping[str, str], *, root: Path = ROOT) -> str:
    """Return the SHA-256, in hex, over the image's Dockerfile stages, build arguments and source files.

    Raises ``FileNotFoundError`` naming a source that is missing.
    """
    digest = hashlib.sha256()
    for line in lines_of_target((root / "Dockerfile").read_text(), image.name):
        digest.update(line.encode() + b"\n")
    for name in image.build_arguments:
        digest.update(f"{name}={build_arguments.get(name, '')}\n".encode())
    for path in _files(image, root):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(root)} {path.stat().st_mode & 0o777:o} {content}\n".encode())
    return digest.hexdigest()


def _files(image: Image, root: Path) -> Iterator[Path]:
    for source in image.sources:
        path = root / source
        if not path.exists():
            raise FileNotFoundError(f"image {image.name} is made of {source}, which does not exist")
        yield from [path] if path.is_file() else sorted(each for each in path.rglob("*") if _is_copied(each, root))


def _is_copied(path: Path, root: Path) -> bool:
    # The same paths that .dockerignore keeps out of the build.
    parts = path.relative_to(root).parts
    return path.is_file() and _NEVER_COPIED.isdisjoint(parts) and not any(part.endswith(".egg-info") for part in parts)
