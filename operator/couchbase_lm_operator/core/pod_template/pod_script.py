"""Sources of the scripts that run inside the pods, from this package's own files."""

from __future__ import annotations

from functools import cache
from importlib import resources


@cache
def pod_script(name: str) -> str:
    """Return the source of ``couchbase_lm_operator/pod/<name>``."""
    return resources.files("couchbase_lm_operator.pod").joinpath(name).read_text(encoding="utf-8")
