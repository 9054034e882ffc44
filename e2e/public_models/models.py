"""Public models by the fields of their config.json that decide what their KV cache and a prefill cost.

``models.json`` was written down by hand: numbers only, one model a line. Its ``source`` says how sure they are:
``published`` was compared with the model's own config.json or a transcription of it, ``defaults`` are those of the
transformers library for the type, or partly assumed, ``unverified`` was written from memory.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FILE = Path(__file__).with_name("models.json")


@dataclass(frozen=True)
class PublicModel:
    """One model by the name that people know; ``config`` is what of its config.json matters."""

    name: str
    source: str
    config: dict[str, Any]


PUBLIC_MODELS = tuple(PublicModel(**each) for each in json.loads(_FILE.read_text(encoding="utf-8")))
