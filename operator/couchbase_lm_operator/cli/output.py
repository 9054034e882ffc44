"""The forms in which commands print: tables for people, YAML and JSON for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

FORMATS = ("table", "yaml", "json")

output_option = click.option(
    "-o", "--output", type=click.Choice(FORMATS), default="table", show_default=True, help="Form of the output."
)


def table(rows: Sequence[Sequence[str]], header: Sequence[str] = ()) -> str:
    """Return rows as columns that are as wide as their longest cell; the last one is not padded."""
    lines = [tuple(header), *map(tuple, rows)] if header else [tuple(row) for row in rows]
    if not lines:
        return ""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]) for line in lines
    )


def dumped(value: Any, form: str) -> str:
    """Return a value as YAML or JSON."""
    if form == "json":
        return json.dumps(value, indent=2)
    import yaml  # noqa: PLC0415 - tables and JSON do without

    return yaml.safe_dump(value, sort_keys=False, width=120).rstrip()


def binary_size(size_bytes: int) -> str:
    """Return a size for people, with three significant digits: ``5.63 MiB``."""
    value, unit = float(size_bytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1024 or unit == "PiB":
            break
        value /= 1024
    return f"{size_bytes} B" if unit == "B" else f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"
