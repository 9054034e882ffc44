"""Where built images lie: archives in the cache by the digest of their inputs, a link per image in the checkout."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from e2e.bootstrap import ROOT, cache_root

IMAGES: Final = ROOT / ".local" / "images"


@dataclass(frozen=True)
class Built:
    """What is known of one built image; ``seconds`` is how long its build took."""

    name: str
    reference: str
    inputs: str
    base: str
    builder: str
    size_bytes: int
    seconds: float


def archive(name: str) -> Path:
    """Return where this checkout finds the archive of image ``name`` once it is built."""
    return IMAGES / f"{name}.tar"


def cached_archive(name: str, inputs: str) -> Path:
    """Return the archive of image ``name`` in the cache that all checkouts share."""
    return cache_root() / "images" / f"{name}-{inputs[:16]}.tar"


def built(name: str) -> Built | None:
    """Return what this checkout last built as ``name``, or None when the archive is gone."""
    record = IMAGES / f"{name}.json"
    if not record.exists() or not archive(name).exists():
        return None
    return Built(**json.loads(record.read_text()))


def publish(entry: Built) -> None:
    """Let this checkout's link and record point at the archive just built, and drop the one it replaces."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    link, target = archive(entry.name), cached_archive(entry.name, entry.inputs)
    replaced = link.resolve() if link.is_symlink() else None
    link.unlink(missing_ok=True)
    link.symlink_to(target)
    (IMAGES / f"{entry.name}.json").write_text(json.dumps(asdict(entry), indent=2) + "\n")
    record_of(target).write_text(json.dumps(asdict(entry), indent=2) + "\n")
    if replaced and replaced != target:
        record_of(replaced).unlink(missing_ok=True)
        replaced.unlink(missing_ok=True)


def cached(name: str, inputs: str) -> Built | None:
    """Return what any checkout built from these inputs, or None."""
    target = cached_archive(name, inputs)
    if not target.exists() or not record_of(target).exists():
        return None
    return Built(**json.loads(record_of(target).read_text()))


def record_of(target: Path) -> Path:
    """Return the file beside an archive in the cache that tells what it is."""
    return target.with_suffix(".json")
