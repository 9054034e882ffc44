"""The model's config.json that a command is given: a file, standard input, or a model of the hub."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from couchbase_lm_operator.cli.failure import BadInputError, WorldError
from couchbase_lm_operator.cli.option_names import in_words_of_options
from couchbase_lm_operator.core.model.model_reading import parse_model_config
from couchbase_lm_operator.core.observed import MalformedModelConfig, Missing, ModelConfig

MAX_FILE_BYTES = 16 << 20
STANDARD_INPUT = "-"


def read_text(path: str) -> str:
    """Return the text of a file, or of standard input for ``-``.

    Raises:
        BadInputError: it cannot be read, is no text or is larger than 16 MiB, of which no more is read.
    """
    try:
        if path == STANDARD_INPUT:
            raw = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                raw = file.read(MAX_FILE_BYTES + 1)
        if len(raw) > MAX_FILE_BYTES:
            raise BadInputError(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB.")
        return raw.decode()
    except UnicodeDecodeError as error:
        raise BadInputError(f"{path} is no text in UTF-8.") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadInputError(f"{path} cannot be read: {reason}.") from error


def config_from_file(path: str) -> ModelConfig:
    """Return the model's configuration from a file of its own.

    Raises:
        BadInputError: it cannot be read or is no JSON object.
    """
    source = "standard input" if path == STANDARD_INPUT else path
    found = parse_model_config(read_text(path), source)
    if isinstance(found, MalformedModelConfig):
        raise BadInputError(f"{source} is no config.json: {found.detail}.")
    return found


def config_from_hub(model_id: str, revision: str | None) -> ModelConfig:
    """Return the configuration of a model of the hub, with the commit that it belongs to.

    ``HF_TOKEN`` is the token for gated and private models, ``HF_ENDPOINT`` another server than the public hub.

    Raises:
        BadInputError: there is no such model or revision, or what is there is no config.json.
        WorldError: the hub cannot be asked.
    """
    import asyncio  # noqa: PLC0415 - files need no network

    from couchbase_lm_operator.io.hf_hub import DEFAULT_ENDPOINT, HubModel, ModelHub  # noqa: PLC0415 - likewise

    endpoint = os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT
    model = HubModel(model_id, revision or "", endpoint, os.environ.get("HF_TOKEN", ""))
    found = asyncio.run(ModelHub().config(model))
    if isinstance(found, ModelConfig):
        return found
    if isinstance(found, MalformedModelConfig):
        raise BadInputError(in_words_of_options(f"{found.source} is no config.json: {found.detail}."))
    if isinstance(found, Missing):
        raise BadInputError(in_words_of_options(f"{found.what} does not exist."))
    failure = WorldError if found.is_outage else BadInputError
    raise failure(in_words_of_options(f"{found.what} could not be read: {found.detail}."))
