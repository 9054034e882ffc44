"""What is generated from the plugin's settings: the table in its README and the operator's list of names.

The operator lives in an environment without the plugin, so it gets the names as a module of its own.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from e2e.bootstrap import ROOT

PLUGIN = ROOT / "plugin" / "couchbase-lm-cache"
README = PLUGIN / "README.md"
OPERATOR_MODULE = ROOT / "operator" / "couchbase_lm_operator" / "core" / "adapter_settings.py"
_BEGIN = "<!-- settings: begin; written by `make generate` from settings.py -->\n"
_END = "<!-- settings: end -->\n"
_HEAD = "| field | type, default | environment | meaning |\n| --- | --- | --- | --- |\n"

# The development environment has the plugin's dependencies, but not the plugin itself.
sys.path.append(str(PLUGIN / "src"))
from couchbase_lm_cache.settings import (  # noqa: E402
    CouchbaseLMCacheConfig,
    default_text,
    environment_variable,
)


def readme_with_settings() -> str:
    """Return the plugin's README with the table as the settings are now.

    Raises:
        ValueError: the README lacks one of the two marks that the table stands between.
    """
    before, begin, rest = README.read_text().partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{README} lacks the line {(_BEGIN if not begin else _END).strip()}")
    return before + _BEGIN + _HEAD + "".join(_row(field) for field in _fields()) + _END + after


def operator_module() -> str:
    """Return the operator's module with the names of all settings."""
    names = "".join(f'        "{name}",\n' for name in sorted(field.name for field in _fields()))
    return (
        '"""The settings of couchbase-lm-cache. Written by ``make generate`` from the plugin\'s settings."""\n\n'
        f"ADAPTER_SETTINGS = frozenset(\n    {{\n{names}    }}\n)\n"
    )


def _fields() -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(CouchbaseLMCacheConfig)


def _row(field: dataclasses.Field[Any]) -> str:
    kind = str(field.type).removesuffix(" | None")
    cells = (f"`{field.name}`", f"{kind}, {_default(field)}", f"`{environment_variable(field)}`", field.metadata["doc"])
    return "| " + " | ".join(cells) + " |\n"


def _default(field: dataclasses.Field[Any]) -> str:
    if default_text(field) == "required":
        return "required"
    if field.default is None:
        return "not set"
    if field.default == "":
        return "empty"
    # Numbers and words as JSON writes them: that is where people set them.
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"
