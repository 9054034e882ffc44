"""Whether the model's config.json was found, in the words of a verdict. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.observed import MalformedModelConfig, Missing, ModelConfig, Unread
from couchbase_lm_operator.core.refusal import RefusedError
from couchbase_lm_operator.core.verdict import Proceed, Refuse, Wait

if TYPE_CHECKING:
    from couchbase_lm_operator.core.verdict import Verdict

LOOK_AGAIN_SECONDS = 15.0
_RETRY_SECONDS = 30.0


def reading_verdict(found: ModelConfig | MalformedModelConfig | Missing | Unread) -> Verdict:
    """Return whether the model's configuration can be used at all."""
    if isinstance(found, Missing):
        return Wait(Reason.MODEL_CONFIG_MISSING, f"{found.what} does not exist: create it.", LOOK_AGAIN_SECONDS)
    if isinstance(found, Unread):
        return Wait(Reason.MODEL_CONFIG_UNREADABLE, f"{found.what} could not be read: {found.detail}.", _RETRY_SECONDS)
    if isinstance(found, MalformedModelConfig):
        return Refuse(
            Reason.MODEL_CONFIG_INVALID,
            f"config.json ({found.source}) cannot be used: {found.detail}. Put the model's own config.json there.",
        )
    return Proceed()


def config_of(found: ModelConfig | MalformedModelConfig | Missing | Unread) -> ModelConfig:
    """Return the configuration.

    Raises:
        RefusedError: there is none that could be used.
    """
    if isinstance(found, ModelConfig):
        return found
    verdict = reading_verdict(found)
    assert isinstance(verdict, Wait | Refuse)  # noqa: S101 - only a ModelConfig lets proceed
    raise RefusedError(verdict.reason, verdict.message)
