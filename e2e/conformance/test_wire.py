"""The data protocol itself: what a lean client has to count on."""

import struct
import time
from collections.abc import Iterator

import pytest

from e2e.conformance.conftest import Place
from e2e.conformance.target import Target
from e2e.conformance.wire import FEATURES, SNAPPY, WireClient, leb128, vbucket_of
from e2e.conformance.world import PASSWORD, World, unique

MIB = 1024 * 1024
_MECHANISMS = ("SCRAM-SHA512", "SCRAM-SHA256", "SCRAM-SHA1", "PLAIN")


@pytest.fixture
def clients(target: Target, world: World, place: Place) -> Iterator[list[WireClient]]:
    """A connection to every node with the collection open."""
    opened = []
    for host, port in world.data_addresses():
        client = world.wire(host, port)
        assert client.login(target.username, target.password) == 0
        assert client.open_collection(place.bucket, place.scope, place.collection) == 0
        opened.append(client)
    yield opened
    for client in opened:
        client.close()


def _owner(clients: list[WireClient], key: bytes) -> WireClient:
    config = clients[0].cluster_config()["vBucketServerMap"]
    owner: int = config["vBucketMap"][vbucket_of(key, clients[0].vbuckets)][0]
    return clients[owner]


@pytest.mark.parametrize("mechanism", _MECHANISMS)
def test_login(target: Target, world: World, mechanism: str) -> None:
    """Every mechanism takes the right password and refuses a wrong one and an unknown user."""
    host, port = world.data_addresses()[0]
    for username, password, expected in (
        (target.username, target.password, 0),
        (target.username, "wrong-Password-1", 0x20),
        (unique("nobody"), target.password, 0x20),
    ):
        with world.wire(host, port) as client:
            assert client.login(username, password, mechanism) == expected


def test_mechanisms_are_listed(world: World) -> None:
    """The strongest mechanisms are offered before login."""
    host, port = world.data_addresses()[0]
    with world.wire(host, port) as client:
        offered = client.call(0x20).value.decode().split()
    assert {"SCRAM-SHA512", "SCRAM-SHA256", "SCRAM-SHA1"} <= set(offered)


def test_nothing_without_login(world: World, place: Place) -> None:
    """Before login neither buckets nor configuration nor documents can be reached."""
    host, port = world.data_addresses()[0]
    with world.wire(host, port) as client:
        assert client.select_bucket(place.bucket) == 0x24
        assert client.call(0xB5).status == 0x24
        assert client.get(b"key").status in (0x08, 0x24)


def test_hello_grants_what_a_lean_client_needs(target: Target, world: World) -> None:
    """Collections, extended errors and bucket selection are granted, unknown features are not."""
    host, port = world.data_addresses()[0]
    with WireClient(host, port, tls=target.tls_context()) as client:
        granted = client.hello((*FEATURES, 0x7F00))
        assert set(granted) == set(FEATURES)


def test_cluster_config_names_every_node(world: World, clients: list[WireClient], place: Place) -> None:
    """The configuration of a bucket has its map, the uuid of REST, and exactly one `thisNode`."""
    shown = world.http.get(f"/pools/default/buckets/{place.bucket}").json()
    for client in clients:
        config = client.cluster_config()
        assert config["name"] == place.bucket
        assert config["uuid"] == shown["uuid"]
        assert [bool(node.get("thisNode")) for node in config["nodesExt"]].count(True) == 1
        owners = {row[0] for row in config["vBucketServerMap"]["vBucketMap"]}
        assert owners == set(range(len(clients)))


def test_values_round_trip_with_flags_and_cas(clients: list[WireClient]) -> None:
    """Flags come back, the CAS of a write is that of the next read."""
    for number in range(20):
        key = b"key-%d" % number
        client = _owner(clients, key)
        written = client.set(key, b"value %d" % number, flags=0x03000000)
        assert written.status == 0
        found = client.get(key)
        assert (found.status, found.value, found.extras) == (0, b"value %d" % number, struct.pack(">I", 0x03000000))
        assert found.cas == written.cas
        assert client.delete(key).status == 0
        assert client.get(key).status == 0x01


def test_requests_in_flight_are_answered_in_full(clients: list[WireClient]) -> None:
    """Pipelined reads of large values each bring their own value."""
    client = clients[0]
    keys = [key for key in (b"key-%d" % number for number in range(64)) if _owner(clients, key) is client][:8]
    for key in keys:
        assert client.set(key, key.ljust(MIB, b".")).status == 0
    asked = {client.send_get(key): key for key in keys}
    for _ in keys:
        reply = client.receive()
        assert reply.value == asked.pop(reply.opaque).ljust(MIB, b".")
    assert not asked


def test_wrong_node_answers_with_the_map(clients: list[WireClient]) -> None:
    """A vBucket of another node: status "not my vBucket" and the configuration as body."""
    if len(clients) == 1:
        # One node has every vBucket there is; only a number beyond the map is foreign.
        reply = clients[0].call(0x00, key=leb128(clients[0].collection_id) + b"key", vbucket=clients[0].vbuckets)
    else:
        wrong = next(client for client in clients if client is not _owner(clients, b"key"))
        reply = wrong.get(b"key")
    assert reply.status == 0x07
    assert reply.json()["vBucketServerMap"]["vBucketMap"]


def test_unknown_collection(clients: list[WireClient], place: Place) -> None:
    """Collections and scopes that do not exist have statuses of their own."""
    client = clients[0]
    assert client.call(0xBB, value=f"{place.scope}.{unique('missing')}".encode()).status == 0x88
    assert client.call(0xBB, value=f"{unique('missing')}.x".encode()).status == 0x8C
    client.collection_id = 0x7FFFFF
    reply = _owner(clients, b"key").get(b"key") if len(clients) == 1 else client.set(b"key", b"value")
    assert reply.status in (0x88, 0x07)


def test_key_limits(clients: list[WireClient]) -> None:
    """246 bytes in a named collection, 250 in the default one, and no empty key."""
    for collection_id, longest in ((clients[0].collection_id, 246), (0, 250)):
        for client in clients:
            client.collection_id = collection_id
        fitting, too_long = b"k" * longest, b"k" * (longest + 1)
        assert _owner(clients, fitting).set(fitting, b"v").status == 0
        assert _owner(clients, fitting).delete(fitting).status == 0
        assert _owner(clients, too_long).set(too_long, b"v").status == 0x04
        assert _owner(clients, b"").set(b"", b"v").status == 0x04


def test_value_limits(clients: list[WireClient]) -> None:
    """More than 20 MiB is refused and the connection stays usable; a frame above 30 MiB closes it."""
    client = _owner(clients, b"key")
    assert client.set(b"key", bytes(20 * MIB + 1)).status == 0x03
    assert client.set(b"key", b"small").status == 0
    with pytest.raises((ConnectionError, OSError)):
        client.set(b"key", bytes(31 * MIB))


def test_snappy_values_need_agreement(clients: list[WireClient]) -> None:
    """A value marked as compressed is refused when that was not agreed on."""
    client = _owner(clients, b"key")
    assert SNAPPY not in FEATURES
    assert client.set(b"key", b"\x05\x10hello", datatype=0x02).status == 0x04


def test_add_replace_and_cas(clients: list[WireClient]) -> None:
    """Add refuses an existing key, replace a missing one, a stale CAS is a mismatch."""
    client = _owner(clients, b"key")
    place = {"key": leb128(client.collection_id) + b"key", "vbucket": vbucket_of(b"key", client.vbuckets)}
    extras = bytes(8)
    assert client.call(0x03, **place, extras=extras, value=b"v").status == 0x01
    assert client.call(0x02, **place, extras=extras, value=b"v").status == 0
    assert client.call(0x02, **place, extras=extras, value=b"v").status == 0x02
    assert client.call(0x01, **place, extras=extras, value=b"w", cas=1).status == 0x02


def test_preserved_expiry(clients: list[WireClient]) -> None:
    """A write with the preserve-expiry frame keeps the expiry of the document."""
    client = _owner(clients, b"key")
    client.hello((*FEATURES, 0x14))
    place = {"key": leb128(client.collection_id) + b"key", "vbucket": vbucket_of(b"key", client.vbuckets)}
    assert client.set(b"key", b"v", expiry=3600).status == 0
    first = client.call(0xA0, **place)
    assert client.set(b"key", b"w", framing=b"\x50").status == 0
    second = client.call(0xA0, **place)
    assert first.status == second.status == 0
    # Extras of the metadata: deleted flag, flags, expiry.
    assert struct.unpack_from(">I", first.extras, 8) == struct.unpack_from(">I", second.extras, 8) != (0,)


def test_app_user_sees_only_its_collection(world: World, bucket: str, place: Place) -> None:
    """The manifest over the data protocol lists what the user has rights on; identifiers of others are unknown."""
    other_scope, other_collection = world.make_collection(bucket)
    user = world.make_user(f"data_reader[{place.path}]")
    host, port = world.data_addresses()[0]
    with world.wire(host, port) as client:
        assert client.login(user, PASSWORD) == 0
        assert client.open_collection(place.bucket, place.scope, place.collection) == 0
        assert client.call(0xBB, value=f"{other_scope}.{other_collection}".encode()).status in (0x88, 0x8C)


def test_metadata_is_told_without_the_value(clients: list[WireClient]) -> None:
    """GET_META brings deletion, flags, expiry and sequence number; what was removed is absent or marked as deleted."""
    key = b"metadata"
    client = _owner(clients, key)
    written = client.set(key, bytes(MIB), flags=0x03000002, expiry=1000)
    told = client.get_meta(key)
    assert (told.status, told.value, told.cas) == (0, b"", written.cas)
    deleted, flags, expiry, seqno = struct.unpack_from(">IIIQ", told.extras)
    assert (deleted, flags, seqno > 0) == (0, 0x03000002, True)
    assert abs(expiry - (time.time() + 1000)) < 60
    assert client.delete(key).status == 0
    gone = client.get_meta(key)
    assert gone.status == 0x01 or struct.unpack_from(">I", gone.extras)[0] == 1
    assert _owner(clients, b"never").get_meta(b"never").status == 0x01


def test_touch_gives_a_new_lifetime_and_no_value(clients: list[WireClient]) -> None:
    """TOUCH changes the expiry only, and answers for a missing document as a read does."""
    key = b"touched"
    client = _owner(clients, key)
    assert client.set(key, b"value", flags=7, expiry=100).status == 0
    for expiry, remaining in ((5000, 5000), (0, None)):
        touched = client.touch(key, expiry)
        assert (touched.status, touched.value) == (0, b"")
        _, flags, moment, _ = struct.unpack_from(">IIIQ", client.get_meta(key).extras)
        assert flags == 7
        assert moment == 0 if remaining is None else abs(moment - (time.time() + remaining)) < 60
    assert client.get(key).value == b"value"
    assert _owner(clients, b"never").touch(b"never", 10).status == 0x01
