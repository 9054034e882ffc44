"""The KV memory of an engine on CPU, which a variable of vLLM decides. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from couchbase_lm_operator.core.quantity import GIB

if TYPE_CHECKING:
    from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec

VARIABLE = "VLLM_CPU_KVCACHE_SPACE"
DEFAULT_GIB = 4
_WHOLE_NUMBER = re.compile(r"[0-9]{1,6}")


def cpu_cache_bytes(spec: LMCacheCouchbaseSpec) -> int:
    """Return the KV memory of one rank; the default where users' own value is not written out as a number."""
    value = next((entry.get("value") for entry in spec.engine.env if entry.get("name") == VARIABLE), None)
    gib = int(value) if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value) else DEFAULT_GIB
    return gib * GIB
