"""Every number, name, flag and image of one resource, in one frozen plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from couchbase_lm_operator.core.couchbase_state import CouchbaseGoal
    from couchbase_lm_operator.core.model_shape import ModelShape
    from couchbase_lm_operator.core.sizing import Sizing
    from couchbase_lm_operator.core.workload import Workload


@dataclass(frozen=True)
class Choice:
    """A value that the user left open, what it became, and why."""

    field: str
    value: str
    reason: str


@dataclass(frozen=True)
class Plan:
    """What one resource becomes.

    ``couchbase`` is the goal of the provisioning arm, ``workload`` everything that the templates show.
    ``warnings`` are sentences for people about things that work but are probably not meant.
    """

    name: str
    namespace: str
    uid: str
    generation: int
    shape: ModelShape
    sizing: Sizing
    couchbase: CouchbaseGoal
    workload: Workload
    key_prefix: str
    config_digest: str
    transfer_mode: str
    transfer_reason: str
    url: str
    choices: tuple[Choice, ...]
    warnings: tuple[str, ...]
