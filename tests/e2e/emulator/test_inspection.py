"""What tests of the product see: documents, counters, addresses, the command line."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from e2e.couchbase_emulator import Emulator, RunningEmulator
from tests.e2e.emulator.conftest import Start, Wire

ROOT = Path(__file__).parents[3]


def test_documents_are_seen_by_key(emulator: RunningEmulator) -> None:
    with Wire(emulator) as client:
        client.set(b"one", b"value", flags=7)
        client.set(b"two", bytes(100_000), expiry=100)
    documents = emulator.documents("cache", "kv", "shards")
    assert documents.keys() == {b"one", b"two"}
    assert (documents[b"one"].value, documents[b"one"].flags, documents[b"one"].expiry) == (b"value", 7, 0)
    assert documents[b"two"].expiry > 0
    assert emulator.documents("cache") == {}
    with pytest.raises(KeyError, match="shards"):
        emulator.documents("cache", "_default", "shards")


def test_documents_are_written_without_a_client(emulator: RunningEmulator) -> None:
    documents = {b"key-%d" % number: (b"value %d" % number, number) for number in range(50)}
    emulator.put_documents("cache", "kv", "shards", documents)
    assert {name: (one.value, one.flags) for name, one in emulator.documents("cache", "kv", "shards").items()} == (
        documents
    )
    with Wire(emulator) as client:
        assert [client.get(name).value for name in documents] == [value for value, _ in documents.values()]
    with pytest.raises(KeyError, match="missing"):
        emulator.put_documents("cache", "kv", "missing", documents)


def test_documents_are_listed_over_rest(emulator: RunningEmulator, http: httpx.Client) -> None:
    with Wire(emulator) as client:
        client.set(b"one", b"value", flags=7)
    where = {"bucket": "cache", "scope": "kv", "collection": "shards"}
    listed = http.get("/_emulator/documents", params=where).json()["documents"]
    assert listed == [{"key": "one", "bytes": 5, "flags": 7, "expiry": 0}]
    assert http.get("/_emulator/documents", params=where | {"scope": "missing"}).status_code == 404


def test_only_changes_count_as_mutations(emulator: RunningEmulator, http: httpx.Client) -> None:
    before = emulator.mutations
    with Wire(emulator) as client:
        client.get(b"missing")
        http.get("/pools/default")
        http.post("/pools/default/checkPermissions", content="cluster.pools!read")
        http.post("/pools/default/buckets?just_validate=1", data={"name": "x", "ramQuota": "100"})
        http.post("/pools/default/buckets", data={"name": "bad name"})
        assert emulator.mutations == before
        client.set(b"key", b"v")
        client.delete(b"key")
        client.delete(b"key")
        http.put("/settings/rbac/users/local/x", data={"password": "password-1", "roles": ""})
    assert emulator.mutations == (before.rest_writes + 1, before.kv_writes + 2)
    counters = http.get("/_emulator/counters").json()
    assert counters["kvWrites"] == before.kv_writes + 2
    assert counters["restRequests"]["GET /pools/default"] == 1


def test_dropping_a_collection_removes_its_documents(emulator: RunningEmulator, http: httpx.Client) -> None:
    with Wire(emulator) as client:
        client.set(b"key", bytes(1000))
        assert http.delete("/pools/default/buckets/cache/scopes/kv/collections/shards").status_code == 200
        # The user has no right in the bucket any more, therefore a plain refusal.
        assert client.get(b"key").status in (0x24, 0x88)
    assert http.get("/pools/default/buckets/cache").json()["basicStats"]["memUsed"] == 0


def test_dropping_a_bucket_closes_its_connections(emulator: RunningEmulator, http: httpx.Client) -> None:
    with Wire(emulator) as client:
        http.delete("/pools/default/buckets/cache")
        with pytest.raises(ConnectionError):
            client.get(b"key")


async def test_async_use() -> None:
    async with Emulator(buckets=(("cache", 100),)) as emulator:
        async with httpx.AsyncClient(auth=(emulator.admin_username, emulator.admin_password)) as http:
            response = await http.get(emulator.management_urls[0] + "/pools/default/buckets/cache")
            assert response.json()["evictionPolicy"] == "nruEviction"
        url = emulator.management_urls[0]
    async with httpx.AsyncClient() as http:
        with pytest.raises(httpx.ConnectError):
            await http.get(url)


def test_alternate_addresses(start: Start) -> None:
    emulator = start(nodes=2)
    auth = (emulator.admin_username, emulator.admin_password)
    path = "/node/controller/setupAlternateAddresses/external"
    form = {"hostname": "outside.example", "kv": "31210", "mgmt": "31091"}
    assert httpx.put(emulator.management_urls[1] + path, data=form, auth=auth).status_code == 200
    nodes = httpx.get(emulator.management_urls[0] + "/pools/default/nodeServices", auth=auth).json()["nodesExt"]
    assert "alternateAddresses" not in nodes[0]
    external = nodes[1]["alternateAddresses"]["external"]
    assert external == {"hostname": "outside.example", "ports": {"kv": 31210, "mgmt": 31091}}
    assert httpx.delete(emulator.management_urls[1] + path, auth=auth).status_code == 200


def test_command_line_serves_until_told_to_stop(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "e2e.couchbase_emulator", "--mgmt-port", "0", "--kv-port", "0", "--nodes", "2"]
    command += ["--tls-dir", str(tmp_path), "--mgmt-tls-port", "0", "--kv-tls-port", "0", "--bucket", "cache:128"]
    environment = {"COUCHBASE_EMULATOR_PASSWORD": "from-environment", "PATH": ""}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            described = json.loads(line)
            assert "from-environment" not in line
            assert len(described["management"]) == 2
            assert described["connectionString"].count(":") == 3
            auth = (described["username"], "from-environment")
            bucket = httpx.get(described["management"][1] + "/pools/default/buckets/cache", auth=auth).json()
            assert bucket["quota"]["rawRAM"] == 128 * 1024 * 1024
            assert (tmp_path / "ca.pem").is_file()
            assert (tmp_path / "server.key").stat().st_mode & 0o077 == 0
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def test_command_line_explains_itself() -> None:
    command = [sys.executable, "-m", "e2e.couchbase_emulator"]
    shown = subprocess.run([*command, "--help"], capture_output=True, text=True, cwd=ROOT, check=True).stdout
    assert "--uninitialised" in shown
    refused = subprocess.run([*command, "--bucket", "x:y"], capture_output=True, text=True, cwd=ROOT, check=False)
    assert refused.returncode == 2
    assert "NAME:MIB" in refused.stderr
