"""Hashes of what must not mix: key prefixes and pod templates. Pure.

LMCache's keys name the model, the rank and the tokens, but not what gives the bytes their layout: two
engines with other data types, versions or flags would read each other's bytes as their own.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

_PREFIX_DIGITS = 16


def digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value in canonical form, as hex digits."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def key_prefix(inputs: dict[str, Any]) -> str:
    """Return the start of every key: a hash of everything that changes bytes but not keys.

    The tensor-parallel size stays out: the rank in the key carries it.
    """
    return f"{digest(inputs)[:_PREFIX_DIGITS]}:"
