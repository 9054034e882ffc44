"""The model's config.json: parsed, and in the words of a verdict whether it was found. Pure."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.backoff import MISSING_REFERENCE_DELAY_SECONDS
from couchbase_lm_operator.core.observed import MalformedModelConfig, Missing, ModelConfig, Unread
from couchbase_lm_operator.core.refusal import RefusedError
from couchbase_lm_operator.core.verdict import Proceed, Refuse, Wait

if TYPE_CHECKING:
    from couchbase_lm_operator.core.verdict import Verdict

_RETRY_SECONDS = 30.0


def parse_model_config(text: str, source: str) -> ModelConfig | MalformedModelConfig:
    """Return a config.json of no known commit, or where it is broken; ``source`` names it for people."""
    try:
        content = json.loads(text)
    except ValueError as error:
        position = f": see line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        return MalformedModelConfig(source, f"it is not JSON{position}")
    except RecursionError:
        return MalformedModelConfig(source, "it is nested too deeply")
    if not isinstance(content, dict):
        return MalformedModelConfig(source, "it is JSON, but not an object")
    return ModelConfig(content, hashlib.sha256(text.encode()).hexdigest(), "", source)


def reading_verdict(found: ModelConfig | MalformedModelConfig | Missing | Unread) -> Verdict:
    """Return whether the model's configuration can be used at all."""
    if isinstance(found, Missing):
        return Wait(
            Reason.MODEL_CONFIG_MISSING, f"{found.what} does not exist: create it.", MISSING_REFERENCE_DELAY_SECONDS
        )
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
