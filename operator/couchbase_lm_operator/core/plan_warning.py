"""One thing that works but is probably not meant. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from couchbase_lm_operator.api.reasons import Reason


@dataclass(frozen=True)
class PlanWarning:
    """One of them; ``message`` names the field."""

    reason: Reason
    message: str

    def to_dict(self) -> dict[str, str]:
        """Return the form that status and ``lmcb plan -o json`` show."""
        return {"reason": self.reason.value, "message": self.message}
