"""One question to vLLM: a config.json, the engine's flags, and chunk sizes of interest. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """``engine`` holds arguments of vLLM's ``EngineArgs``; ``chunks`` are LMCache chunk sizes in tokens.

    ``device`` is ``cpu`` for the few model classes that compute while they are built.
    """

    name: str
    config: dict[str, Any]
    engine: dict[str, Any] = field(default_factory=dict)
    chunks: tuple[int, ...] = ()
    device: str = "meta"
