"""One question to vLLM: a model, the engine's flags, and chunk sizes of interest. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """The library's default configuration of ``model_type`` with ``changes`` made to it.

    ``engine`` has the fields of ``core.engine.engine_layout.EngineLayout`` that are not at their defaults; ``chunks``
    are LMCache chunk sizes in tokens, beside three that are always tried. Without ``is_built`` the answer is the
    configuration alone.
    """

    model_type: str
    changes: dict[str, Any] = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=dict)
    chunks: tuple[int, ...] = ()
    is_built: bool = True

    @property
    def name(self) -> str:
        """Return what tells it from all other cases."""
        told = [f"{key}={value}" for key, value in (*self.changes.items(), *self.engine.items())]
        return " ".join((self.model_type, *told))
