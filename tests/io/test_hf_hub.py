"""A model's config.json from a hub: found, refused, and what a hostile server or endpoint gets."""

from __future__ import annotations

import asyncio
import gzip
from typing import TYPE_CHECKING

import pytest

from couchbase_lm_operator.core.couchbase.connection_string import Address
from couchbase_lm_operator.core.observed import MalformedModelConfig, Missing, ModelConfig, Unread
from couchbase_lm_operator.io.addresses import AddressGuard, guard_for
from couchbase_lm_operator.io.hf_hub import MAX_CONFIG_BYTES, HubModel, ModelHub
from tests.model_hub import COMMIT, CONFIG, Hub, running_hub

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = "hf_a-secret-token"


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running_hub() as running:
        yield running


def model(hub: Hub, **changes: str) -> HubModel:
    return HubModel(**({"model_id": "org/model", "endpoint": hub.url} | changes))


async def test_a_config_comes_with_the_commit_it_belongs_to(hub: Hub) -> None:
    found = await ModelHub().config(model(hub))
    assert isinstance(found, ModelConfig)
    assert (found.content, found.revision) == (CONFIG, COMMIT)
    assert hub.paths == ["/org/model/resolve/main/config.json"]


async def test_a_commit_is_asked_for_once_and_a_branch_only_for_its_commit(hub: Hub) -> None:
    models = ModelHub()
    first = await models.config(model(hub))
    hub.paths.clear()
    assert await models.config(model(hub, revision=COMMIT)) == first
    assert hub.paths == []
    assert await models.config(model(hub)) == first
    assert hub.paths == ["/org/model/resolve/main/config.json"]


async def test_the_token_travels_in_the_header_and_nowhere_else(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    wanted = model(hub, token=TOKEN)
    assert isinstance(await ModelHub().config(wanted), ModelConfig)
    assert set(hub.tokens) == {f"Bearer {TOKEN}"}
    assert TOKEN not in repr(wanted) + caplog.text + "".join(hub.paths)


async def test_no_token_of_the_operators_own_environment_is_sent(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    await ModelHub().config(model(hub))
    assert set(hub.tokens) == {None}


@pytest.mark.parametrize(
    ("status", "code", "kind", "words"),
    [
        (404, "RepoNotFound", Missing, "spec.model.id"),
        (401, "RepoNotFound", Missing, "spec.model.id"),
        (404, "RevisionNotFound", Missing, "spec.model.revision"),
        (404, "EntryNotFound", Missing, "config.json"),
        (403, "GatedRepo", Unread, "spec.model.tokenSecretRef"),
        (500, "", Unread, "HTTP 500"),
        (429, "", Unread, "HTTP 429"),
    ],
)
async def test_refusals_are_told_apart(hub: Hub, status: int, code: str, kind: type, words: str) -> None:
    hub.status, hub.error_code = status, code
    found = await ModelHub().config(model(hub, token=TOKEN))
    assert isinstance(found, kind)
    assert words in str(found)
    assert TOKEN not in str(found)


@pytest.mark.parametrize("body", [b"not json", b"[1]", b'{"a":', b"\xff\xfe", b"[" * 100_000, b"x" * 3_000_000])
async def test_what_is_no_config_is_told(hub: Hub, body: bytes) -> None:
    hub.body = body
    assert isinstance(await ModelHub().config(model(hub)), MalformedModelConfig)


async def test_a_dead_hub_is_told() -> None:
    with running_hub() as hub:
        pass
    found = await ModelHub().config(model(hub))
    assert isinstance(found, Unread)
    assert "does not answer" in found.detail


async def test_a_hub_that_hangs_is_given_up() -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    async with server:
        endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        found = await ModelHub(deadline_seconds=0.2).config(HubModel("org/model", endpoint=endpoint))
    assert isinstance(found, Unread)
    assert found.is_outage


async def test_what_a_branch_led_to_last_stands_while_the_hub_is_out_of_order(hub: Hub) -> None:
    models = ModelHub()
    hub.status = 503
    assert isinstance(await models.config(model(hub)), Unread)
    hub.status = 200
    found = await models.config(model(hub))
    assert isinstance(found, ModelConfig)
    hub.status = 503
    assert await models.config(model(hub)) == found
    # who did not read it before does not get it now
    for stranger in (model(hub, token=TOKEN), model(hub, revision="other"), model(hub, model_id="org/other")):
        assert isinstance(await models.config(stranger), Unread)
    hub.status, hub.error_code = 404, "RevisionNotFound"
    assert isinstance(await models.config(model(hub)), Missing)


async def test_what_one_token_read_is_not_given_to_another(hub: Hub) -> None:
    models = ModelHub()
    assert isinstance(await models.config(model(hub, token=TOKEN)), ModelConfig)
    hub.status, hub.error_code = 401, "RepoNotFound"
    assert isinstance(await models.config(model(hub, revision=COMMIT)), Missing)


async def test_a_redirect_within_the_hub_is_followed(hub: Hub) -> None:
    hub.location = f"/api/resolve-cache/models/org/model/{COMMIT}/config.json"
    found = await ModelHub().config(model(hub, token=TOKEN))
    assert isinstance(found, ModelConfig)
    assert found.revision == COMMIT
    assert hub.paths == ["/org/model/resolve/main/config.json", hub.location]


async def test_a_redirect_to_another_server_is_not_followed(hub: Hub) -> None:
    with running_hub() as other:
        hub.location = f"{other.url}/config.json"
        found = await ModelHub().config(model(hub, token=TOKEN))
        assert isinstance(found, Unread)
        assert "redirects to another server" in found.detail
        assert other.paths == []
    hub.location = "/org/model/resolve/round/config.json"
    assert "without end" in str(await ModelHub().config(model(hub)))
    hub.location = "http://127.0.0.1:x/"
    assert "does not answer as a hub" in str(await ModelHub().config(model(hub)))


async def test_an_endless_body_is_cut(hub: Hub) -> None:
    hub.is_endless = True
    found = await ModelHub().config(model(hub))
    assert isinstance(found, MalformedModelConfig)
    assert "larger" in found.detail
    # what was sent beyond the limit lies in the buffers of the two sockets
    assert hub.sent_bytes < 64 * MAX_CONFIG_BYTES


async def test_a_packed_body_is_not_unpacked(hub: Hub) -> None:
    hub.encoding, hub.body = "gzip", gzip.compress(b" " * 10_000_000)
    assert "does not answer as a hub" in str(await ModelHub().config(model(hub)))


async def test_every_connection_goes_to_an_address_that_was_judged(hub: Hub) -> None:
    class Turning(AddressGuard):
        """As with a name whose address is another one at the second look."""

        judged = 0

        async def resolve(self, target: Address) -> tuple[str, ...]:
            Turning.judged += 1
            at = target if Turning.judged == 1 else Address("169.254.169.254", target.port)
            return await super().resolve(at)

    hub.location = "/config.json"
    found = await ModelHub(Turning()).config(model(hub))
    assert isinstance(found, Unread)
    assert "link-local" in found.detail
    assert not found.is_outage
    assert hub.paths == ["/org/model/resolve/main/config.json"]


async def test_the_api_server_is_not_asked(hub: Hub) -> None:
    port = int(hub.url.rpartition(":")[2])
    found = await ModelHub(await guard_for([Address("127.0.0.1", port)])).config(model(hub))
    assert isinstance(found, Unread)
    assert "API server" in found.detail
    assert hub.paths == []


@pytest.mark.parametrize(
    "endpoint",
    [
        "file:///etc",
        "http://user:pw@host",
        "http://host/?a=b",
        "http://h:x",
        "http://169.254.169.254",
        "no-url",
        "http://no-such-host.invalid",
    ],
)
async def test_endpoints_that_are_not_asked(endpoint: str) -> None:
    assert isinstance(await ModelHub().config(HubModel("org/model", endpoint=endpoint)), Unread)


@pytest.mark.parametrize("model_id", ["a/b/c", "../etc", "org/mo del", "org/model--x", ""])
async def test_ids_that_are_no_repository(hub: Hub, model_id: str) -> None:
    assert isinstance(await ModelHub().config(model(hub, model_id=model_id)), Unread)
