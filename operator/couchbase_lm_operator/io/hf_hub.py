"""A model's config.json from the Hugging Face hub, or one that speaks its protocol.

One GET of ``{endpoint}/{model}/resolve/{revision}/config.json`` gives the file and, in ``X-Repo-Commit``, the
commit that it belongs to, so that the numbers in a plan belong to the weights the pods load. The author of a
resource chooses the endpoint: addresses are guarded at every connection, redirects stay at that endpoint (the
public hub's do), and what is sent is cut at a size. Tokens travel in a header only and appear in no message.
Protocol: https://huggingface.co/docs/hub (resolve URLs, X-Repo-Commit, X-Error-Code).
"""

from __future__ import annotations

import asyncio
import re
import ssl
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import quote

import httpx

from couchbase_lm_operator.core.model.model_reading import parse_model_config
from couchbase_lm_operator.core.observed import MalformedModelConfig, Missing, ModelConfig, Unread
from couchbase_lm_operator.io.addresses import AddressGuard, ForbiddenAddressError, UnresolvedError
from couchbase_lm_operator.io.guarded_transport import GuardedTransport, address_of

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_ENDPOINT = "https://huggingface.co"
# Also what the record of a pod template can hold beside the template: see core.children.kept_config.
MAX_CONFIG_BYTES = 256 * 1024
# A pass waits for the hub, so a hub that hangs must not hold back the repair of what drifted.
_CONNECT_SECONDS, _READ_SECONDS, _DEADLINE_SECONDS = 3.0, 6.0, 8.0
_MAX_REDIRECTS = 5
_FILE = "config.json"
_CACHED_CONFIGS = 64
_MODEL_ID = re.compile(r"(\w([\w.-]*\w)?/)?\w([\w.-]*\w)?", re.ASCII)
_COMMIT = re.compile(r"\w[\w.-]{0,127}", re.ASCII)

Found = ModelConfig | MalformedModelConfig | Missing | Unread


@dataclass(frozen=True)
class HubModel:
    """Which config.json: ``revision`` "" is the default branch, ``token`` "" none."""

    model_id: str
    revision: str = ""
    endpoint: str = DEFAULT_ENDPOINT
    token: str = field(default="", repr=False)

    @property
    def question(self) -> str:
        """Return what is asked for, in one line: endpoint, model and revision."""
        return f"{self.endpoint} {self.model_id} {self.revision}".rstrip()


class ModelHub:
    """Reads configs. Those of a commit never change and are kept in memory.

    What a branch led to last stands while the hub cannot be asked. What one token read is not given to another.
    ``deadline_seconds`` is the longest that one question takes.
    """

    def __init__(self, guard: AddressGuard | None = None, *, deadline_seconds: float = _DEADLINE_SECONDS) -> None:
        self._deadline_seconds = deadline_seconds
        self._guard = guard or AddressGuard()
        self._known: dict[HubModel, ModelConfig] = {}
        self._latest: dict[HubModel, ModelConfig] = {}
        self._tls: ssl.SSLContext | None = None

    async def config(self, model: HubModel) -> Found:
        """Return the config, or why there is none."""
        known = self._known.get(model)
        if known is not None:
            return known
        url = _url(model)
        found = url if isinstance(url, Unread) else await self._asked(model, url)
        if isinstance(found, ModelConfig):
            found = replace(found, asked=model.question)
            _keep(self._known, replace(model, revision=found.revision), found)
            _keep(self._latest, model, found)
        # An outage of the hub must neither stop scaling nor make a resource that serves not Ready.
        return self._latest.get(model, found) if isinstance(found, Unread) and found.is_outage else found

    async def _asked(self, model: HubModel, url: httpx.URL) -> Found:
        try:
            async with asyncio.timeout(self._deadline_seconds), self._client(url) as client:
                return await self._read(client, url, model)
        except ForbiddenAddressError as error:
            return Unread(_what(model), f"spec.model.config.hub.endpoint: {str(error).rstrip('.')}")
        except UnresolvedError as error:
            return Unread(_what(model), str(error).rstrip("."), is_outage=True)
        except (httpx.HTTPError, TimeoutError):
            return _no_hub(model)

    def _client(self, url: httpx.URL) -> httpx.AsyncClient:
        if url.scheme == "https":
            self._tls = self._tls or ssl.create_default_context()
        # Without TLS an empty context, which trusts nobody.
        tls = self._tls if url.scheme == "https" and self._tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return httpx.AsyncClient(
            transport=GuardedTransport(self._guard, tls),
            timeout=httpx.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS),
            follow_redirects=False,
            trust_env=False,
        )

    async def _read(self, client: httpx.AsyncClient, url: httpx.URL, model: HubModel) -> Found:
        headers = {"Accept-Encoding": "identity"}
        if model.token:
            headers["Authorization"] = f"Bearer {model.token.strip()}"
        origin, commit = (url.scheme, address_of(url)), ""
        for _ in range(_MAX_REDIRECTS):
            async with client.stream("GET", url, headers=headers) as response:
                commit = commit or response.headers.get("X-Repo-Commit", "")
                if response.has_redirect_location:
                    url = _joined(url, response.headers["Location"])
                    if (url.scheme, address_of(url)) != origin:
                        told = f"{model.endpoint} redirects to another server, which is not followed"
                        return Unread(_what(model), told, is_outage=True)
                    continue
                if response.status_code != httpx.codes.OK:
                    return _refused(response.status_code, response.headers, model)
                if not _COMMIT.fullmatch(commit) or response.headers.get("Content-Encoding", "identity") != "identity":
                    return _no_hub(model)
                known = self._known.get(replace(model, revision=commit))
                if known is not None:
                    return known
                body = await _body(response)
            return _parsed(body, commit, model)
        return Unread(_what(model), f"{model.endpoint} redirects without end", is_outage=True)


def _url(model: HubModel) -> httpx.URL | Unread:
    """Return the file's URL; nothing is asked where the resource's own fields cannot be right."""
    what, field_name = _what(model), "spec.model.config.hub.endpoint"
    if not _MODEL_ID.fullmatch(model.model_id) or "--" in model.model_id or ".." in model.model_id:
        return Unread(what, "spec.model.id is no valid repository name")
    if model.revision in {".", ".."}:
        return Unread(what, "spec.model.revision is no branch, tag or commit")
    if not model.token.strip().isascii() or not model.token.strip().isprintable():
        return Unread(what, "the value of spec.model.tokenSecretRef is no token: it has other characters than ASCII's")
    revision = quote(model.revision or "main", safe="")
    try:
        base = httpx.URL(model.endpoint)
        url = httpx.URL(f"{model.endpoint.rstrip('/')}/{model.model_id}/resolve/{revision}/{_FILE}")
    except httpx.InvalidURL:
        return Unread(what, f"{field_name} is no URL")
    if base.scheme not in {"http", "https"} or not base.host or base.userinfo or base.query or base.fragment:
        return Unread(what, f"{field_name} must be an http or https URL without user, password and query")
    return url


def _joined(url: httpx.URL, location: str) -> httpx.URL:
    try:
        return url.join(location)
    except httpx.InvalidURL as error:
        raise httpx.RemoteProtocolError("the redirect names no URL") from error


async def _body(response: httpx.Response) -> bytes | None:
    """Return the body, or None as soon as it is longer than a config may be."""
    body = bytearray()
    async for part in response.aiter_raw():
        body += part
        if len(body) > MAX_CONFIG_BYTES:
            return None
    return bytes(body)


def _parsed(body: bytes | None, commit: str, model: HubModel) -> Found:
    if body is None:
        return MalformedModelConfig(_what(model), f"it is larger than {MAX_CONFIG_BYTES} bytes")
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return MalformedModelConfig(_what(model), "it is not UTF-8 text")
    found = parse_model_config(text, _what(model))
    return replace(found, revision=commit) if isinstance(found, ModelConfig) else found


def _keep(kept: dict[HubModel, ModelConfig], key: HubModel, config: ModelConfig) -> None:
    """Put a config last, and let the one that was put longest ago go when there are many."""
    kept.pop(key, None)
    while len(kept) >= _CACHED_CONFIGS:
        kept.pop(next(iter(kept)))
    kept[key] = config


def _refused(status: int, headers: Mapping[str, str], model: HubModel) -> Missing | Unread:
    code = headers.get("X-Error-Code", "")
    if code == "GatedRepo":
        advice = "the model is gated: accept its terms and name a token in spec.model.tokenSecretRef"
        return Unread(_what(model), advice)
    if code == "RevisionNotFound":
        return Missing(f"revision {model.revision!r} of spec.model.revision in model {model.model_id!r}")
    if code == "EntryNotFound":
        return Missing(f"{_FILE} in model {model.model_id!r} of spec.model.id")
    # the hub does not tell strangers whether a private model exists
    if code == "RepoNotFound" or status in {httpx.codes.UNAUTHORIZED, httpx.codes.NOT_FOUND}:
        return Missing(f"model {model.model_id!r} of spec.model.id at {model.endpoint} (or a token that may read it)")
    is_outage = status >= httpx.codes.INTERNAL_SERVER_ERROR or status in {
        httpx.codes.TOO_MANY_REQUESTS,
        httpx.codes.REQUEST_TIMEOUT,
    }
    return Unread(_what(model), f"{model.endpoint} answers HTTP {status}", is_outage=is_outage)


def _no_hub(model: HubModel) -> Unread:
    return Unread(_what(model), f"{model.endpoint} does not answer as a hub does", is_outage=True)


def _what(model: HubModel) -> str:
    return f"{_FILE} of model {model.model_id!r}"
