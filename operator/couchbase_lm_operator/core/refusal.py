"""The one exception of the pure core: a refusal on its way to becoming a verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from couchbase_lm_operator.core.verdict import Refuse

if TYPE_CHECKING:
    from couchbase_lm_operator.api.reasons import Reason


class RefusedError(Exception):
    """A spec, or what it refers to, that cannot work; ``core.checks`` turns it into a verdict."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.verdict = Refuse(reason, message)
