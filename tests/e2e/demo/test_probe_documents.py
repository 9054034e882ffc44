"""The probe tells a refusal from any other failure, with the real SDK against the emulator."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from couchbase.exceptions import UnAmbiguousTimeoutException

from e2e.couchbase_emulator import running_emulator
from e2e.demo import probe_documents
from e2e.demo.strangers import strange_places

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from e2e.couchbase_emulator import RunningEmulator

USER, PASSWORD = "reader", "a-Password-1!"
BUCKET, SCOPE, COLLECTION = "mine", "ours", "kv"
PLACES = (
    "the default collection",
    "another collection of its scope",
    "another scope of its bucket",
    "another bucket",
)


@pytest.fixture
def couchbase() -> Iterator[RunningEmulator]:
    with running_emulator(memory_quota_mib=1024) as emulator:
        yield emulator


@pytest.fixture
def http(couchbase: RunningEmulator) -> Iterator[httpx.Client]:
    login = (couchbase.admin_username, couchbase.admin_password)
    with httpx.Client(base_url=couchbase.management_urls[0], auth=login, timeout=30) as client:
        couchbase.create_bucket(BUCKET)
        scopes = f"/pools/default/buckets/{BUCKET}/scopes"
        client.post(scopes, data={"name": SCOPE}).raise_for_status()
        client.post(f"{scopes}/{SCOPE}/collections", data={"name": COLLECTION}).raise_for_status()
        yield client


def _probe(
    couchbase: RunningEmulator, http: httpx.Client, roles: str, credentials: Path, capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    http.put(f"/settings/rbac/users/local/{USER}", data={"password": PASSWORD, "roles": roles}).raise_for_status()
    (credentials / "username").write_text(USER)
    (credentials / "password").write_text(PASSWORD)
    with strange_places(http, BUCKET, SCOPE) as strange, pytest.MonkeyPatch.context() as patch:
        task = {
            "connectionString": couchbase.connection_string,
            "management": couchbase.management_urls[0],
            "credentials": str(credentials),
            "bucket": BUCKET,
            "scope": SCOPE,
            "collection": COLLECTION,
            "keys": [],
            "strange": strange,
        }
        patch.setattr("sys.argv", ["-", json.dumps(task)])
        probe_documents.main()
    return dict(json.loads(capsys.readouterr().out)["attempts"])


def _own(kind: str) -> str:
    return f"{kind}[{BUCKET}:{SCOPE}:{COLLECTION}]"


def test_a_user_of_one_collection_is_refused_everything_else(
    couchbase: RunningEmulator, http: httpx.Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    attempts = _probe(couchbase, http, f"{_own('data_reader')},{_own('data_writer')}", tmp_path, capsys)
    assert set(attempts) == {
        *("create a bucket", "list users"),
        *(f"{verb} {place}" for verb in ("read", "write") for place in PLACES),
    }
    assert {what for what, attempt in attempts.items() if not attempt["isRefused"]} == set()


def test_a_right_too_many_is_noticed(
    couchbase: RunningEmulator, http: httpx.Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    roles = f"data_reader[*],data_writer[{BUCKET}:{SCOPE}],ro_admin"
    attempts = _probe(couchbase, http, roles, tmp_path, capsys)
    assert {what for what, attempt in attempts.items() if not attempt["isRefused"]} >= {
        *(f"read {place}" for place in PLACES),
        "write another collection of its scope",
    }
    assert attempts["write another bucket"]["isRefused"]


def test_a_failure_that_is_no_refusal_counts_as_none(couchbase: RunningEmulator) -> None:
    def time_out() -> None:
        raise UnAmbiguousTimeoutException

    assert probe_documents.attempt(time_out) == {"isRefused": False, "said": "UnAmbiguousTimeoutException"}
    admin = couchbase.admin_username, couchbase.admin_password
    absent = probe_documents.rest_attempt(f"{couchbase.management_urls[0]}/no/such/path", *admin, None)
    assert absent == {"isRefused": False, "said": "HTTP 404"}


def test_what_was_made_for_the_probe_is_removed_again(http: httpx.Client) -> None:
    def places() -> tuple[list[str], list[Any]]:
        buckets = http.get("/pools/default/buckets").raise_for_status().json()
        scopes = http.get(f"/pools/default/buckets/{BUCKET}/scopes").raise_for_status().json()["scopes"]
        listed = [(scope["name"], [each["name"] for each in scope["collections"]]) for scope in scopes]
        return [bucket["name"] for bucket in buckets], listed

    before = places()
    with strange_places(http, BUCKET, SCOPE) as strange:
        assert strange["another bucket"]["bucket"] in places()[0]
        assert len(places()[1]) == len(before[1]) + 1
    assert places() == before
