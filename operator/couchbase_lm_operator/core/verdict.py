"""What a check or an arm of the reconciler concluded: go on, wait, or refuse. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from couchbase_lm_operator.api.reasons import Reason


@dataclass(frozen=True)
class Proceed:
    """Nothing stands in the way."""


@dataclass(frozen=True)
class Wait:
    """Something that comes by itself is missing; look again after ``delay_seconds``, later in growing steps."""

    reason: Reason
    message: str
    delay_seconds: float


@dataclass(frozen=True)
class Refuse:
    """A person has to change something; ``message`` names the field and says what to do."""

    reason: Reason
    message: str


Verdict = Proceed | Wait | Refuse
