"""Kubernetes quantities and durations as whole bytes and seconds. Pure."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

_FACTORS: dict[str, Decimal] = {"": Decimal(1), "m": Decimal("0.001")} | {
    unit: Decimal(factor)
    for power, prefix in enumerate("KMGTPE", start=1)
    for unit, factor in ((f"{prefix}i", 1024**power), ("k" if prefix == "K" else prefix, 1000**power))
}
_QUANTITY = re.compile(r"^(?P<number>[0-9]+(\.[0-9]+)?)((?P<unit>[a-zA-Z]{0,2})|[eE](?P<exponent>[+-]?[0-9]{1,2}))$")
_DURATION = re.compile(
    r"^((?P<days>[0-9]+)d)?((?P<hours>[0-9]+)h)?((?P<minutes>[0-9]+)m)?((?P<seconds>[0-9]+)s)?$",
)
_SECONDS = {"days": 86400, "hours": 3600, "minutes": 60, "seconds": 1}


def parse_bytes(text: str) -> int:
    """Return a quantity such as ``512Mi`` or ``1e9`` in bytes, rounded up.

    Raises:
        ValueError: it is not a quantity.
    """
    found = _QUANTITY.match(text)
    if found is None or (found["unit"] or "") not in _FACTORS:
        raise ValueError(f"{text!r} is not a size such as 512Mi or 2Gi")
    value = Decimal(found["number"]) * _FACTORS[found["unit"] or ""] * Decimal(10) ** int(found["exponent"] or 0)
    return int(value.to_integral_value(ROUND_CEILING))


def format_bytes(size_bytes: int) -> str:
    """Return the shortest exact quantity with a binary unit: ``1Gi``, ``1536Mi``, ``1000``."""
    for unit, factor in (("Gi", GIB), ("Mi", MIB), ("Ki", KIB)):
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return str(size_bytes)


def parse_seconds(text: str) -> int:
    """Return a duration such as ``24h`` or ``1d12h`` in seconds; ``0`` is none.

    Raises:
        ValueError: it is not a duration.
    """
    if text == "0":
        return 0
    found = _DURATION.match(text)
    if not text or found is None:
        raise ValueError(f"{text!r} is not a duration such as 90s, 24h or 1d12h")
    return sum(int(found[unit] or 0) * seconds for unit, seconds in _SECONDS.items())


def round_up(value: int, step: int) -> int:
    """Return the smallest multiple of ``step`` that is not below ``value``."""
    return -(-value // step) * step
