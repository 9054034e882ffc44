"""Whole numbers out of a configuration that nobody has checked yet. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_COUNT = 1 << 24


class UnknownNumberError(Exception):
    """A number that a formula needs is missing, of the wrong kind or absurd; the message names the field."""


def first_count(config: dict[str, Any], names: Iterable[str], *, least: int = 1, default: int | None = None) -> int:
    """Return the first of the named fields that is set, between ``least`` and 2^24.

    Raises:
        UnknownNumberError: none is set and there is no ``default``, or the one that is set is no such number.
    """
    names = tuple(names)
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_COUNT:
            raise UnknownNumberError(f"{name} is not a number from {least} to {MAX_COUNT}")
        return value
    if default is None:
        raise UnknownNumberError(f"{names[0]} is missing")
    return default
