"""All that is known when the pod is put together, in one record. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec
    from couchbase_lm_operator.core.couchbase_state import CouchbaseGoal
    from couchbase_lm_operator.core.defaults import Defaults
    from couchbase_lm_operator.core.engine.engine_values import EngineValues
    from couchbase_lm_operator.core.sizing.sizing import Sizing
    from couchbase_lm_operator.core.sizing.transfer import Transfer


@dataclass(frozen=True)
class PodInputs:
    """The spec of resource ``name`` and everything that was worked out from it."""

    spec: LMCacheCouchbaseSpec
    name: str
    values: EngineValues
    sizing: Sizing
    goal: CouchbaseGoal
    key_prefix: str
    transfer: Transfer
    defaults: Defaults
