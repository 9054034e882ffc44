"""What vLLM 0.32 and LMCache 0.5.6 were seen to store and to refuse.

``REAL_RUNS``: an engine and a server on CPU, prompts of random tokens, sizes of the objects that reached the
second level. ``PUBLIC_MODELS``: vLLM's own model classes on the meta device, grouped by vLLM, sized by
LMCache's code for CUDA; sparse attention without FlashMLA's rows. ``NOT_STORED``: runs that ended without an
object, and why. Of each configuration only the fields that matter for the cache are kept; ``layer_types`` is
one letter for each layer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_KINDS = {
    "a": "attention",
    "c": "chunked_attention",
    "f": "full_attention",
    "l": "linear_attention",
    "m": "mamba",
    "s": "sliding_attention",
    "v": "conv",
}


@dataclass(frozen=True)
class RealRun:
    """One run; ``objects`` are (rank, object group, bytes, how many), empty where nothing was stored."""

    case: str
    config: dict[str, Any]
    engine: dict[str, Any]
    transfer: str
    chunk_tokens: int
    prompt_tokens: int
    block_tokens: int = 0
    objects: tuple[tuple[str, int, int, int], ...] = ()
    refused: str = ""
    not_runnable: str = ""


@dataclass(frozen=True)
class PublicModel:
    """One public model on one rank of CUDA: bytes of a chunk with all groups together, and separated."""

    model: str
    config: dict[str, Any]
    engine: dict[str, Any]
    block_tokens: int
    attention_bytes: int
    state_bytes: int
    chunk_tokens: int
    together: tuple[int, ...]
    separate: tuple[int, ...]
    separate_kinds: tuple[str, ...]


def _rows(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((Path(__file__).parent / f"{name}.json").read_text())
    for row in rows:
        kinds = row["config"].get("layer_types")
        if kinds is not None:
            row["config"]["layer_types"] = [_KINDS[letter] for letter in kinds]
    return rows


def _tuples(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(tuple(each) if isinstance(each, list) else each for each in value)
        if isinstance(value, list)
        else value
        for name, value in row.items()
    }


REAL_RUNS = tuple(RealRun(**_tuples(row)) for row in _rows("real_runs"))
NOT_STORED = tuple(RealRun(**_tuples(row)) for row in _rows("not_stored"))
PUBLIC_MODELS = tuple(PublicModel(**_tuples(row)) for row in _rows("public_models"))
