"""Nodes leave, join and restart; every client is told who holds what."""

import time

import pytest

from e2e.conformance.wire import WireClient, vbucket_of
from e2e.couchbase_emulator import RunningEmulator
from tests.e2e.emulator.conftest import Start, rest

PLACE = ("cache", "_default", "_default")
KEYS = [b"key-%d" % number for number in range(60)]


def connect(address: tuple[str, int]) -> WireClient:
    client = WireClient(*address, timeout_seconds=5)
    client.hello()
    assert client.login("Administrator", "password") == 0
    assert client.open_collection(*PLACE) == 0
    return client


def spread(emulator: RunningEmulator) -> list[int]:
    """Number of vBuckets of every node in the map that the first one gives."""
    with connect(emulator.kv_addresses[0]) as client:
        config = client.cluster_config()["vBucketServerMap"]
    assert config["serverList"] == [f"{host}:{port}" for host, port in emulator.kv_addresses]
    owners = [chain[0] for chain in config["vBucketMap"]]
    return [owners.count(node) for node in range(len(config["serverList"]))]


def store_everywhere(emulator: RunningEmulator) -> int:
    """Write every key where it belongs; returns how many vBuckets there are."""
    stored = 0
    for address in emulator.kv_addresses:
        with connect(address) as client:
            stored += sum(client.set(key, b"value of " + key).status == 0 for key in KEYS)
            vbuckets = client.vbuckets
    assert stored == len(KEYS)
    return vbuckets


def found(emulator: RunningEmulator) -> int:
    """Number of keys that are found on the node that holds them."""
    count = 0
    for address in emulator.kv_addresses:
        with connect(address) as client:
            count += sum(client.get(key).value == b"value of " + key for key in KEYS)
    return count


@pytest.fixture
def three(start: Start) -> RunningEmulator:
    return start(nodes=3, buckets=(("cache", 100),))


def test_leaving_node_hands_over_and_is_gone(three: RunningEmulator) -> None:
    store_everywhere(three)
    gone = three.kv_addresses[1]
    three.remove_node(1)
    assert gone not in three.kv_addresses
    assert found(three) == len(KEYS)
    assert [abs(share - 512) < 2 for share in spread(three)] == [True, True]
    with pytest.raises(ConnectionRefusedError):
        connect(gone)
    with rest(three) as http:
        assert len(http.get("/pools/default").json()["nodes"]) == 2
        assert len(http.get("/pools/default/nodeServices").json()["nodesExt"]) == 2
    assert three.add_node(1) == 1
    assert three.kv_addresses[1] == gone
    assert found(three) == len(KEYS)
    assert [abs(share - 341) < 2 for share in spread(three)] == [True] * 3


def test_left_node_that_still_listens_gives_the_new_map(three: RunningEmulator) -> None:
    vbuckets = store_everywhere(three)
    with connect(three.kv_addresses[2]) as client:
        before = client.cluster_config()["rev"]
        key = next(key for key in KEYS if client.get(key).status == 0)
        three.remove_node(2, close_sockets=False)
        reply = client.get(key)
        assert reply.status == 0x07
        config = reply.json()
    assert config["rev"] > before
    assert len(config["vBucketServerMap"]["serverList"]) == 2
    owner = config["vBucketServerMap"]["vBucketMap"][vbucket_of(key, vbuckets)][0]
    with connect(three.kv_addresses[owner]) as client:
        assert client.get(key).value == b"value of " + key


def test_new_node_takes_its_share(three: RunningEmulator) -> None:
    store_everywhere(three)
    three.create_user("app", "app-password", "data_reader[cache]")
    assert three.add_node() == 3
    assert spread(three) == [256] * 4
    assert found(three) == len(KEYS)
    with WireClient(*three.kv_addresses[3], timeout_seconds=5) as client:
        client.hello()
        assert client.login("app", "app-password") == 0


def test_impossible_changes(start: Start) -> None:
    emulator = start(nodes=2)
    with pytest.raises(ValueError, match="part of the cluster"):
        emulator.add_node(1)
    emulator.remove_node(1)
    with pytest.raises(ValueError, match="left already"):
        emulator.remove_node(1)
    with pytest.raises(ValueError, match="last one"):
        emulator.remove_node(0)


def test_membership_over_rest(three: RunningEmulator) -> None:
    with rest(three) as http:
        assert http.post("/_emulator/faults", json={"remove_node": 2}).status_code == 200
        assert len(three.kv_addresses) == 2
        assert http.post("/_emulator/faults", json={"remove_node": 2}).status_code == 400
        assert http.post("/_emulator/faults", json={"add_node": 2}).status_code == 200
        assert len(three.kv_addresses) == 3


def test_restart_keeps_ports_and_loses_ephemeral_documents(three: RunningEmulator) -> None:
    store_everywhere(three)
    addresses = three.kv_addresses
    begin = time.monotonic()
    three.restart(down_seconds=0.2)
    assert time.monotonic() - begin >= 0.2
    assert three.kv_addresses == addresses
    assert found(three) == 0


def test_alternate_address(three: RunningEmulator) -> None:
    three.set_alternate_address(0, "outside.example", {"kv": 31210})
    three.set_alternate_address(1, "elsewhere.example")
    with connect(three.kv_addresses[2]) as client:
        nodes = client.cluster_config()["nodesExt"]
    assert nodes[0]["alternateAddresses"] == {"external": {"hostname": "outside.example", "ports": {"kv": 31210}}}
    assert nodes[1]["alternateAddresses"] == {"external": {"hostname": "elsewhere.example"}}
    assert "alternateAddresses" not in nodes[2]
