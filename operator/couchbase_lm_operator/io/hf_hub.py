"""A model's config.json from the Hugging Face hub, or one that speaks its protocol.

A revision is resolved to a commit first, then the file of exactly that commit is read, so that the numbers
in a plan belong to the weights the pods load. Tokens travel in a header only and appear in no message.
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import huggingface_hub
from huggingface_hub import errors

from couchbase_lm_operator.core.connection_string import Address
from couchbase_lm_operator.core.model_reading import parse_model_config
from couchbase_lm_operator.core.observed import MalformedModelConfig, Missing, ModelConfig, Unread
from couchbase_lm_operator.io.couchbase.addresses import AddressGuard, ForbiddenAddressError, UnresolvedError

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_ENDPOINT = "https://huggingface.co"
MAX_CONFIG_BYTES = 2 * 1024 * 1024
_TIMEOUT_SECONDS = 10.0
_FILE = "config.json"
_CACHED_CONFIGS = 64
# The error root of the HTTP library that the hub client happens to use: httpx or httpx2, by its version.
_TransportError: type[Exception] = errors.HTTPError  # type: ignore[attr-defined]

_Key = TypeVar("_Key")
Found = ModelConfig | MalformedModelConfig | Missing | Unread


@dataclass(frozen=True)
class HubModel:
    """Which config.json: ``revision`` "" is the default branch, ``token`` "" none."""

    model_id: str
    revision: str = ""
    endpoint: str = DEFAULT_ENDPOINT
    token: str = field(default="", repr=False)


class ModelHub:
    """Reads configs. Those of a commit never change and are kept in memory.

    What a branch led to last stands while the hub cannot be asked; the same token must have read it.
    """

    def __init__(self, guard: AddressGuard | None = None) -> None:
        self._guard = guard or AddressGuard()
        self._known: dict[tuple[str, str, str], ModelConfig] = {}
        self._latest: dict[HubModel, ModelConfig] = {}

    async def config(self, model: HubModel) -> Found:
        """Return the config, or why there is none."""
        known = self._known.get((model.endpoint, model.model_id, model.revision))
        if known is not None:
            return known
        found: Found | None = await self._refusal(model)
        if found is None:
            found = await asyncio.to_thread(_translated, lambda: self._fetch(model), model)
        if isinstance(found, ModelConfig):
            _keep(self._known, (model.endpoint, model.model_id, found.revision), found)
            _keep(self._latest, model, found)
        # An outage of the hub must neither stop scaling nor make a resource that serves not Ready.
        return self._latest.get(model, found) if isinstance(found, Unread) else found

    async def _refusal(self, model: HubModel) -> Unread | None:
        what = _what(model)
        try:
            parts = urlsplit(model.endpoint)
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            return Unread(what, "spec.model.config.hub.endpoint is no URL")
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.password:
            return Unread(what, "spec.model.config.hub.endpoint must be an http or https URL without user and password")
        try:
            await self._guard.resolve(Address(parts.hostname, port))
        except (ForbiddenAddressError, UnresolvedError) as error:
            return Unread(what, str(error).rstrip("."))
        return None

    def _fetch(self, model: HubModel) -> Found:
        url = huggingface_hub.hf_hub_url(
            model.model_id, _FILE, revision=model.revision or None, endpoint=model.endpoint
        )
        # False: never a token from the operator's own environment.
        token: str | bool = model.token or False
        metadata = huggingface_hub.get_hf_file_metadata(
            url, token=token, timeout=_TIMEOUT_SECONDS, endpoint=model.endpoint
        )
        if not metadata.commit_hash:
            return Unread(_what(model), "the hub does not tell the commit")
        if metadata.size is None or metadata.size > MAX_CONFIG_BYTES:
            return MalformedModelConfig(_what(model), f"it is larger than {MAX_CONFIG_BYTES} bytes or of unknown size")
        known = self._known.get((model.endpoint, model.model_id, metadata.commit_hash))
        if known is not None:
            return known
        with tempfile.TemporaryDirectory(prefix="model-config-") as folder:
            path = huggingface_hub.hf_hub_download(
                model.model_id,
                _FILE,
                revision=metadata.commit_hash,
                local_dir=folder,
                token=token,
                endpoint=model.endpoint,
                etag_timeout=_TIMEOUT_SECONDS,
            )
            text = Path(path).read_text(encoding="utf-8")
        found = parse_model_config(text, _what(model))
        return replace(found, revision=metadata.commit_hash) if isinstance(found, ModelConfig) else found


def _keep(kept: dict[_Key, ModelConfig], key: _Key, config: ModelConfig) -> None:
    """Put a config last, and let the one that was put longest ago go when there are many."""
    kept.pop(key, None)
    while len(kept) >= _CACHED_CONFIGS:
        kept.pop(next(iter(kept)))
    kept[key] = config


def _translated(fetch: Callable[[], Found], model: HubModel) -> Found:
    try:
        return fetch()
    except errors.HFValidationError:
        return Unread(_what(model), "spec.model.id is no valid repository name")
    except UnicodeDecodeError:
        return MalformedModelConfig(_what(model), "it is not UTF-8 text")
    except errors.HfHubHTTPError as error:
        return _refused(error, model)
    except errors.EntryNotFoundError:
        return _no_file(model)
    except (_TransportError, OSError):
        return Unread(_what(model), f"{model.endpoint} does not answer as a hub does")


def _refused(error: errors.HfHubHTTPError, model: HubModel) -> Missing | Unread:
    match error:
        case errors.GatedRepoError():
            advice = "the model is gated: accept its terms and name a token in spec.model.tokenSecretRef"
            return Unread(_what(model), advice)
        case errors.RepositoryNotFoundError():
            return Missing(
                f"model {model.model_id!r} of spec.model.id at {model.endpoint} (or a token that may read it)"
            )
        case errors.RevisionNotFoundError():
            return Missing(f"revision {model.revision!r} of spec.model.revision in model {model.model_id!r}")
        case errors.EntryNotFoundError():
            return _no_file(model)
        case _:
            return Unread(_what(model), f"{model.endpoint} answers HTTP {error.response.status_code}")


def _no_file(model: HubModel) -> Missing:
    return Missing(f"{_FILE} in model {model.model_id!r} of spec.model.id")


def _what(model: HubModel) -> str:
    return f"{_FILE} of model {model.model_id!r}"
