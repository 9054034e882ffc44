"""What follows when a Secret or ConfigMap that the spec names is not there or cannot be read. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.backoff import MISSING_REFERENCE_DELAY_SECONDS
from couchbase_lm_operator.core.observed import Unread
from couchbase_lm_operator.core.verdict import Wait

if TYPE_CHECKING:
    from couchbase_lm_operator.core.observed import Missing


def reference_verdict(found: Missing | Unread) -> Wait:
    """Return the wait for an object that a person has to create, or let the operator read."""
    if isinstance(found, Unread):
        told = f"{found.what} cannot be read: {found.detail}."
        return Wait(Reason.REFERENCE_UNREADABLE, told, MISSING_REFERENCE_DELAY_SECONDS)
    reason = Reason.CONFIG_MAP_MISSING if "ConfigMap" in found.what else Reason.SECRET_MISSING
    told = f"{found.what} does not exist: create it; it is picked up by itself."
    return Wait(reason, told, MISSING_REFERENCE_DELAY_SECONDS)
