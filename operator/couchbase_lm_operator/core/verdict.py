"""What a check says: go on, wait, or refuse. Every step of a pass speaks in these three words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Proceed:
    """Nothing stands in the way."""


@dataclass(frozen=True)
class Wait:
    """Something outside the spec is not there yet; look again after ``delay_seconds``.

    ``reason`` is a CamelCase word of ``api.reasons``; ``message`` names the object and what to do.
    """

    reason: str
    message: str
    delay_seconds: float


@dataclass(frozen=True)
class Refuse:
    """The spec, or what it refers to, cannot work as it is: only a person can fix it.

    ``reason`` is a CamelCase word of ``api.reasons``; ``message`` names the field and what to do.
    """

    reason: str
    message: str


Verdict = Proceed | Wait | Refuse
