"""Which images there are, and the files of the repository that each is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from e2e.images import EMULATOR_IMAGE, ENGINE_CPU_IMAGE, ENGINE_IMAGE, OPERATOR_IMAGE


@dataclass(frozen=True)
class Image:
    """One target of the Dockerfile; ``sources`` are the paths, relative to the root, that it copies.

    ``is_only_copies``: the last stage copies folders that the cache of this machine holds as well.
    """

    name: str
    reference: str
    sources: tuple[str, ...]
    build_arguments: tuple[str, ...] = ("BASE",)
    is_default: bool = True
    is_only_copies: bool = False


CATALOG: Final = (
    Image(
        "operator",
        OPERATOR_IMAGE,
        (
            *("LICENSE", "README.md", "compat.yaml", "operator", "plugin", "pyproject.toml"),
            *("requirements/device-build.lock", "requirements/images.lock", "requirements/operator.lock"),
        ),
    ),
    Image(
        "emulator",
        EMULATOR_IMAGE,
        ("e2e/couchbase_emulator", "requirements/emulator.lock", "requirements/images.lock"),
    ),
    Image(
        "engine-cpu",
        ENGINE_CPU_IMAGE,
        (
            *("e2e/bootstrap.py", "e2e/engine", "requirements/engine.lock", "requirements/engine-model.lock"),
            *("e2e/cluster/commands.py", "e2e/cluster/errors.py", "e2e/cluster/progress.py"),
            *("requirements/images.lock",),
        ),
        is_only_copies=True,
    ),
    # Not among the defaults: its base comes from a registry and is large.
    Image(
        "engine",
        ENGINE_IMAGE,
        (
            *("operator/couchbase_lm_operator/__init__.py", "operator/couchbase_lm_operator/wheelhouse"),
            *("plugin/couchbase-lm-cache", "requirements/images.lock"),
        ),
        build_arguments=("BASE", "ENGINE_BASE"),
        is_default=False,
    ),
)


def image(name: str) -> Image:
    """Return the image called ``name``; raises ``KeyError`` with the names there are."""
    for candidate in CATALOG:
        if candidate.name == name:
            return candidate
    raise KeyError(f"no image is called {name!r}: there are {', '.join(each.name for each in CATALOG)}")
