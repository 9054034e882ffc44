"""A value that was worked out, for people: what became of an open field, and why. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Choice:
    """A field that the user left open (below ``spec``), its value, and the reason in a few words."""

    field: str
    value: str
    reason: str
