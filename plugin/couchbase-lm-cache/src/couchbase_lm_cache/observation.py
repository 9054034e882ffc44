"""What an adapter has really stored and loaded: sizes and layouts of objects, and the speed of whole loads.

Whoever sizes a bucket from a model's configuration predicts these numbers; here is what they are. Pure.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, NamedTuple


class ObjectKind(NamedTuple):
    """Which objects have one size and layout in common: those of one object group of one rank."""

    model_name: str
    object_group: int
    kv_rank: str


@dataclass(frozen=True)
class ObjectLayout:
    """Size of an object as it was last stored or loaded, and what its bytes are.

    Attributes:
        size_bytes: its length.
        shapes: of its tensors, one after the other.
        dtypes: of the same tensors.
        fingerprint: hash of both, as it stands in manifests.
    """

    size_bytes: int
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    fingerprint: str


class Observation:
    """Collects from all tasks of an adapter; safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[ObjectKind, ObjectLayout] = {}
        self._loads = self._bytes = 0
        self._seconds = 0.0

    def saw(self, kind: ObjectKind, layout: ObjectLayout) -> None:
        """Note an object that is in the bucket, or came from it."""
        with self._lock:
            self._objects[kind] = layout

    def loaded(self, size_bytes: int, took_seconds: float) -> None:
        """Note a load all of whose objects arrived."""
        with self._lock:
            self._loads += 1
            self._bytes += size_bytes
            self._seconds += took_seconds

    def objects(self) -> dict[ObjectKind, ObjectLayout]:
        """Return what was seen last of every kind."""
        with self._lock:
            return dict(self._objects)

    def status(self) -> dict[str, Any]:
        """Return everything for the status report; ``bytes_per_second`` is None before the first load."""
        with self._lock:
            objects = sorted(self._objects.items())
            loads, size_bytes, seconds = self._loads, self._bytes, self._seconds
        return {
            "objects": [
                {
                    **kind._asdict(),
                    "bytes": layout.size_bytes,
                    "layout": layout.fingerprint,
                    "shapes": [list(shape) for shape in layout.shapes],
                    "dtypes": list(layout.dtypes),
                }
                for kind, layout in objects
            ],
            "whole_loads": {
                "count": loads,
                "bytes": size_bytes,
                "seconds": round(seconds, 6),
                "bytes_per_second": round(size_bytes / seconds) if seconds else None,
            },
        }
