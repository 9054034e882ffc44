"""Every fault does what it says, in Python and over REST."""

import time
from typing import Any

import httpx
import pytest

from e2e.conformance.wire import WireClient
from e2e.conformance.world import eventually
from e2e.couchbase_emulator import FOREVER, Faults, RunningEmulator
from tests.e2e.emulator.conftest import Start, Wire, kv_port, rest

BUCKET = {"name": "other", "bucketType": "ephemeral", "ramQuota": 100, "replicaNumber": 0}


def test_counted_fault_runs_down_and_forever_stays() -> None:
    faults = Faults(tmpfail=2, drop=FOREVER)
    assert [faults.take("tmpfail") for _ in range(3)] == [True, True, False]
    assert all(faults.take("drop") for _ in range(5))
    faults.clear()
    assert not faults.take("drop")


@pytest.mark.parametrize("values", [{"unknown": 1}, {"tmpfail": "often"}, {"slow_seconds": True}])
def test_bad_switches_are_refused_and_change_nothing(values: dict[str, Any]) -> None:
    faults = Faults()
    with pytest.raises(ValueError, match="fault"):
        faults.update({"drop": 1} | values)
    assert faults == Faults()


def test_statuses(emulator: RunningEmulator) -> None:
    with Wire(emulator) as client:
        emulator.faults.tmpfail = 1
        assert client.set(b"key", b"v").status == 0x86
        assert client.set(b"key", b"v").status == 0
        emulator.faults.not_my_vbucket = 1
        reply = client.get(b"key")
        assert reply.status == 0x07
        assert reply.json()["vBucketServerMap"]
        assert client.get(b"key").status == 0


def test_memory_statuses_for_reads_and_writes(emulator: RunningEmulator) -> None:
    with Wire(emulator) as client:
        client.set(b"key", b"v")
        emulator.faults.out_of_memory = 2
        assert [client.set(b"key", b"w").status, client.delete(b"key").status] == [0x82, 0x82]
        emulator.faults.tmpfail_reads = 1
        emulator.faults.out_of_memory_reads = 1
        assert [client.get(b"key").status for _ in range(2)] == [0x86, 0x82]
        assert client.get(b"key").value == b"v"


def test_refusals_and_wrong_opaques(emulator: RunningEmulator) -> None:
    with Wire(emulator) as client:
        client.set(b"key", b"v")
        emulator.faults.refusal_status = 0x7777
        emulator.faults.refusals = 1
        assert client.get(b"key").status == 0x7777
        emulator.faults.wrong_opaques = 1
        asked = client.send_get(b"key")
        assert client.receive().opaque != asked
        assert client.get(b"key").value == b"v"


def test_values_of_another_length(emulator: RunningEmulator) -> None:
    with Wire(emulator) as client:
        client.set(b"key", b"value")
        emulator.faults.extra_bytes = 3
        assert client.get(b"key").value == b"value\0\0\0"
        emulator.faults.extra_bytes = -2
        assert client.get(b"key").value == b"val"
        emulator.faults.clear()
        assert client.get(b"key").value == b"value"


def test_stream_damage_repeats_with_its_seed() -> None:
    def damaged() -> list[bytes]:
        faults.update({"corrupt_seed": 7, "corrupt_stream": 0.5})
        frames = [bytearray(64) for _ in range(40)]
        assert sum(faults.damage(frame) for frame in frames) == sum(any(frame) for frame in frames)
        return [bytes(frame) for frame in frames]

    faults = Faults()
    first = damaged()
    assert damaged() == first
    assert 5 < sum(any(frame) for frame in first) < 35
    assert any(any(frame[:24]) for frame in first)


def test_stream_damage_can_spare_the_header() -> None:
    faults = Faults(corrupt_stream=1.0, corrupt_from_byte=24)
    frames = [bytearray(30) for _ in range(50)]
    assert all(faults.damage(frame) for frame in frames)
    assert not any(any(frame[:24]) for frame in frames)
    assert not faults.damage(bytearray(24)), "an answer without a body"


def test_stream_damage_can_spare_all_but_documents(emulator: RunningEmulator) -> None:
    emulator.faults.corrupt_documents_only = 1
    emulator.faults.corrupt_from_byte = 24
    emulator.faults.corrupt_stream = 1.0
    value = bytes(1000)
    with Wire(emulator) as client:
        client.set(b"key", value)
        assert client.cluster_config()["nodesExt"]
        assert client.get(b"key").value != value
        assert client.get(b"missing").status == 0x01


def test_damaged_stream(emulator: RunningEmulator) -> None:
    value = bytes(1000)
    with Wire(emulator) as client:
        client.set(b"key", value)
        emulator.faults.corrupt_seed = 3
        emulator.faults.corrupt_stream = 1.0
        client.send_get(b"key")
        eventually(lambda: emulator.counters.kv_damaged_answers == 1, "an answer is damaged", 5)
        emulator.faults.clear()
    with Wire(emulator) as client:
        assert client.get(b"key").value == value


def test_unknown_hello(emulator: RunningEmulator) -> None:
    emulator.faults.unknown_hellos = 1
    with WireClient("127.0.0.1", kv_port(emulator), timeout_seconds=5) as client:
        assert client.call(0x1F, key=b"agent", value=b"\0\x12").status == 0x81
        assert client.call(0x1F, key=b"agent", value=b"\0\x12").value == b"\0\x12"


def test_refused_features_and_mechanisms(start: Start) -> None:
    running = start(sasl_mechanisms=("PLAIN",), refused_features=frozenset({0x12}))
    with WireClient("127.0.0.1", kv_port(running), timeout_seconds=5) as client:
        assert client.call(0x1F, value=b"\0\x12\0\x07").value == b"\0\x07"
        assert client.call(0x20).value == b"PLAIN"
        assert client.login("Administrator", "password", "SCRAM-SHA512") == 0x20
        assert client.login("Administrator", "password", "PLAIN") == 0


def test_recreated_collection_has_a_new_identifier(emulator: RunningEmulator) -> None:
    with Wire(emulator, "Administrator", "password") as client:
        client.set(b"key", b"v")
        before = client.collection_id
        emulator.drop_collection("cache", "kv", "shards")
        assert client.get(b"key").status == 0x88
        assert client.open_collection("cache", "kv", "shards") == 0x88
        emulator.create_collection("cache", "kv", "shards")
        assert client.get(b"key").status == 0x88
        assert client.open_collection("cache", "kv", "shards") == 0
        assert client.collection_id != before
        assert client.get(b"key").status == 0x01


def test_slow_answers_keep_their_order(emulator: RunningEmulator) -> None:
    with Wire(emulator) as client:
        client.set(b"key", b"v")
        emulator.faults.slow_seconds = 0.2
        begin = time.monotonic()
        asked = [client.send_get(b"key") for _ in range(3)]
        eventually(lambda: emulator.counters.kv_requests["GET"] == 3, "the first three are taken", 5)
        emulator.faults.slow_seconds = 0.0
        asked += [client.send_get(b"key") for _ in range(3)]
        assert [client.receive().opaque for _ in range(6)] == asked
        assert 0.15 < time.monotonic() - begin < 2


def test_trickled_values_come_in_two_halves(emulator: RunningEmulator) -> None:
    value, small = bytes(range(256)) * 128, b"v"
    with Wire(emulator) as client:
        client.set(b"large", value)
        client.set(b"small", small)
        emulator.faults.trickle_seconds = 0.3
        begin = time.monotonic()
        asked = [client.send_get(key) for key in (b"large", b"small", b"large")]
        eventually(lambda: emulator.counters.kv_requests["GET"] == 3, "all are taken", 5)
        assert emulator.counters.kv_trickled_values == 0
        emulator.faults.clear()
        replies = [client.receive() for _ in range(3)]
        assert time.monotonic() - begin > 0.25
        assert [reply.opaque for reply in replies] == asked
        assert [reply.value for reply in replies] == [value, small, value]
        assert emulator.counters.kv_trickled_values == 2
        assert client.get(b"large").value == value


def test_the_first_half_of_a_trickled_value_comes_at_once(emulator: RunningEmulator) -> None:
    with Wire(emulator) as client:
        client.set(b"key", bytes(32 * 1024))
        emulator.faults.trickle_seconds = 30.0
        client.send_get(b"key")
        assert len(client.receive_bytes(24 + 4 + 16 * 1024)) == 24 + 4 + 16 * 1024


def test_dropped_requests_get_no_answer(emulator: RunningEmulator) -> None:
    with Wire(emulator) as client:
        client.set(b"key", b"v")
        emulator.faults.drop = 1
        client.send_get(b"key")
        answered = client.send_get(b"key")
        assert client.receive().opaque == answered


def test_hanging_node_does_not_even_say_hello(emulator: RunningEmulator) -> None:
    emulator.faults.hang = FOREVER
    with WireClient("127.0.0.1", kv_port(emulator), timeout_seconds=0.2) as client, pytest.raises(TimeoutError):
        client.hello()
    emulator.faults.clear()
    with Wire(emulator) as client:
        assert client.get(b"key").status == 0x01


def test_disconnect(emulator: RunningEmulator) -> None:
    with Wire(emulator) as client:
        emulator.faults.disconnect = 1
        with pytest.raises(ConnectionError):
            client.get(b"key")


def test_corrupted_and_cut_values(emulator: RunningEmulator) -> None:
    value = bytes(range(256)) * 4096
    with Wire(emulator) as client:
        client.set(b"key", value)
        emulator.faults.corrupt_values = 1
        damaged = client.get(b"key").value
        assert sum(one != other for one, other in zip(damaged, value, strict=True)) == 1
        assert client.get(b"key").value == value
        emulator.faults.cut_values = 1
        with pytest.raises(ConnectionError):
            client.get(b"key")


def test_rest_faults(emulator: RunningEmulator, http: httpx.Client) -> None:
    emulator.faults.http_503 = 2
    assert [http.get("/pools").status_code for _ in range(3)] == [503, 503, 200]
    emulator.faults.http_redirect = 1
    assert http.get("/pools").is_redirect
    emulator.faults.http_drop = 1
    with pytest.raises(httpx.TransportError):
        http.get("/pools")
    assert http.get("/pools").status_code == 200
    emulator.faults.http_slow_seconds = 0.2
    begin = time.monotonic()
    http.get("/pools")
    assert time.monotonic() - begin >= 0.2


def test_faults_over_rest(emulator: RunningEmulator, http: httpx.Client) -> None:
    assert http.post("/_emulator/faults", json={"tmpfail": 3, "slow_seconds": 0.5}).json()["tmpfail"] == 3
    assert emulator.faults.slow_seconds == 0.5
    assert http.post("/_emulator/faults", json={"clear": True}).json()["tmpfail"] == 0
    assert http.post("/_emulator/faults", json={"nonsense": 1}).status_code == 400
    assert http.post("/_emulator/faults", content=b"not json").status_code == 400
    assert http.post("/_emulator/faults", json={"kill_node": 7}).status_code == 400
    assert http.post("/_emulator/faults", json={"advance_clock_seconds": 10}).status_code == 200
    assert httpx.get(emulator.management_urls[0] + "/_emulator/faults").status_code == 401
    emulator.create_user("cluster", "app-password", "cluster_admin")
    for user in ("app", "cluster"):
        with httpx.Client(base_url=emulator.management_urls[0], auth=(user, "app-password")) as other:
            assert other.post("/_emulator/faults", json={"tmpfail": 1}).status_code == 403


def test_killed_node_refuses_and_comes_back_empty(start: Start) -> None:
    emulator = start(nodes=2, buckets=(("cache", 100),))
    place = ("cache", "_default", "_default")
    with Wire(emulator, "Administrator", "password", node=1, place=place) as client:
        keys = [b"key-%d" % number for number in range(40)]
        mine = [key for key in keys if client.set(key, b"v").status == 0]
        assert 0 < len(mine) < 40
        emulator.faults.kill_node(1)
        with pytest.raises((ConnectionError, OSError)):
            client.get(mine[0])
    with pytest.raises(ConnectionRefusedError):
        Wire(emulator, "Administrator", "password", node=1, place=place)
    with pytest.raises(httpx.ConnectError):
        rest(emulator, node=1).get("/pools")
    statuses = [node["status"] for node in rest(emulator).get("/pools/default").json()["nodes"]]
    assert statuses == ["healthy", "unhealthy"]
    emulator.faults.revive_node(1)
    with Wire(emulator, "Administrator", "password", node=1, place=place) as client:
        assert client.get(mine[0]).status == 0x01
    assert rest(emulator, node=1).get("/pools").status_code == 200


def test_node_dies_for_a_while_over_rest(emulator: RunningEmulator, http: httpx.Client) -> None:
    port = kv_port(emulator)
    assert http.post("/_emulator/faults", json={"kill_node": 0, "revive_after_seconds": 0.3}).status_code == 200

    def answers() -> bool:
        try:
            with Wire(emulator):
                return kv_port(emulator) == port
        except (ConnectionError, AssertionError):
            return False

    eventually(lambda: not answers(), "the node is dead", 5)
    eventually(answers, "the node is back on its port", 5)


def test_moved_vbuckets_answer_with_the_new_map(start: Start) -> None:
    emulator = start(nodes=2, buckets=(("cache", 100),))
    with Wire(emulator, "Administrator", "password", place=("cache", "_default", "_default")) as client:
        key = next(key for key in (b"key-%d" % number for number in range(9)) if client.set(key, b"v").status == 0)
        before = client.cluster_config()
        emulator.move_vbuckets()
        reply = client.get(key)
        assert reply.status == 0x07
        assert reply.json()["rev"] > before["rev"]
    with Wire(emulator, "Administrator", "password", node=1, place=("cache", "_default", "_default")) as client:
        assert client.get(key).value == b"v"


def test_users_reach_data_nodes_late_and_one_after_the_other(start: Start) -> None:
    emulator = start(nodes=2, buckets=(("cache", 100),))
    emulator.faults.user_propagation_delay_seconds = 0.4
    with rest(emulator) as http:
        form = {"password": "app-password", "roles": "data_reader[cache]"}
        assert http.put("/settings/rbac/users/local/app", data=form).status_code == 200
        assert http.get("/settings/rbac/users/local/app").status_code == 200

    def login(node: int) -> bool:
        try:
            with Wire(emulator, node=node, place=("cache", "_default", "_default")):
                return True
        except AssertionError:
            return False

    assert not login(0)
    eventually(lambda: login(0), "the first node knows the user", 5)
    assert not login(1)
    eventually(lambda: login(1), "the second node knows the user", 5)


def test_collections_reach_data_nodes_late(start: Start) -> None:
    emulator = start(nodes=2, buckets=(("cache", 100),))
    emulator.faults.manifest_propagation_delay_seconds = 0.3
    scopes = "/pools/default/buckets/cache/scopes"
    with rest(emulator) as http:
        uid = http.post(f"{scopes}/_default/collections", data={"name": "late"}).json()["uid"]
        place = ("cache", "_default", "late")
        with pytest.raises(AssertionError):
            Wire(emulator, "Administrator", "password", place=place)
        assert http.post(f"{scopes}/@ensureManifest/{uid}", data={"timeout": "100"}).status_code == 504
        assert http.post(f"{scopes}/@ensureManifest/{uid}").status_code == 200
        for node in range(2):
            with Wire(emulator, "Administrator", "password", node=node, place=place) as client:
                assert client.get(b"key").status in (0x01, 0x07)


def test_bucket_warms_up(emulator: RunningEmulator, http: httpx.Client) -> None:
    emulator.faults.bucket_warmup_seconds = 0.6
    assert http.post("/pools/default/buckets", data=BUCKET).status_code == 202
    seen: list[str] = []

    def healthy() -> bool:
        nodes = http.get("/pools/default/buckets/other").json()["nodes"]
        state = nodes[0]["status"] if nodes else "no nodes"
        if not seen or seen[-1] != state:
            seen.append(state)
        return state == "healthy"

    with pytest.raises(AssertionError):
        Wire(emulator, "Administrator", "password", place=("other", "_default", "_default"))
    eventually(healthy, "the bucket is healthy", 5)
    assert seen == ["no nodes", "warmup", "healthy"]


def test_deleted_bucket_holds_name_and_memory_until_its_end(emulator: RunningEmulator, http: httpx.Client) -> None:
    http.post("/pools/default/buckets", data=BUCKET)
    used = http.get("/pools/default").json()["storageTotals"]["ram"]["quotaUsedPerNode"]
    emulator.faults.bucket_delete_seconds = 0.5
    emulator.faults.bucket_delete_incomplete = 1
    response = http.delete("/pools/default/buckets/other")
    assert response.status_code == 500
    assert "not yet complete" in response.json()["_"]
    assert http.get("/pools/default/buckets/other").status_code == 404
    assert http.get("/pools/default").json()["storageTotals"]["ram"]["quotaUsedPerNode"] == used
    assert "still exists" in http.post("/pools/default/buckets", data=BUCKET).text
    eventually(lambda: http.post("/pools/default/buckets", data=BUCKET).status_code == 202, "the name is free again", 5)
    begin = time.monotonic()
    assert http.delete("/pools/default/buckets/other").status_code == 200
    assert time.monotonic() - begin >= 0.5


def test_refused_logins(emulator: RunningEmulator) -> None:
    emulator.faults.auth_failures = 1
    with pytest.raises(AssertionError):
        Wire(emulator)
    with Wire(emulator):
        pass
