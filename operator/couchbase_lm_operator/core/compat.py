"""``compat.yaml``: default images and tested versions, from the file that is packaged with the operator. Pure."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from couchbase_lm_operator.core.defaults import Defaults

_NAME = "compat.yaml"


@cache
def compat() -> dict[str, Any]:
    """Return the content of ``compat.yaml``: the packaged copy, or the repository's own in a checkout."""
    packaged = resources.files("couchbase_lm_operator").joinpath(_NAME)
    if packaged.is_file():
        return dict(yaml.safe_load(packaged.read_text(encoding="utf-8")))
    return dict(yaml.safe_load((Path(__file__).parents[3] / _NAME).read_text(encoding="utf-8")))


def defaults(
    *,
    operator_image: str = "",
    engine_images: dict[str, str] | None = None,
    max_l1_bytes: int | None = None,
    allow_host_path: bool = False,
) -> Defaults:
    """Return the defaults of this release, with what an installation says instead; empty means the release's."""
    tested = compat()
    images = {vendor: str(entry["image"]) for vendor, entry in tested["engine"].items()}
    images |= {vendor: image for vendor, image in (engine_images or {}).items() if image}
    release = Defaults(
        operator_image=operator_image or str(tested["operator"]["image"]),
        engine_images=images,
        vllm_version=str(tested["versions"]["vllm"]),
        lmcache_version=str(tested["versions"]["lmcache"]),
        allow_host_path=allow_host_path,
    )
    return release if max_l1_bytes is None else release.with_max_l1_bytes(max_l1_bytes)
