"""Where the direct transport begins: DNS service records, told by a small DNS server."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping

import dns.flags
import dns.message
import dns.rcode
import dns.resolver
import dns.rrset
import pytest
from conftest import PASSWORD, USERNAME, Place

from couchbase_lm_cache import transports
from couchbase_lm_cache.credentials import Credentials
from couchbase_lm_cache.direct.addresses import Node, parse_connection_string
from couchbase_lm_cache.settings import CouchbaseLMCacheConfig
from couchbase_lm_cache.transport import Outcome
from e2e.couchbase_emulator.running import RunningEmulator

PLAIN, ENCRYPTED = "_couchbase._tcp.cluster.test.", "_couchbases._tcp.cluster.test."
Records = Mapping[str, list[str]]
SECONDS = 5.0


class NameServer:
    """Answers over UDP: service records by name, and that a name does not exist."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        self.asked: list[str] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as waker:
            waker.sendto(b"", ("127.0.0.1", self.port))
        self._thread.join(SECONDS)
        self._socket.close()

    def _serve(self) -> None:
        while True:
            wire, client = self._socket.recvfrom(4096)
            if not wire:
                return
            query = dns.message.from_wire(wire)
            name = query.question[0].name.to_text()
            self.asked.append(name)
            answer = dns.message.make_response(query)
            answer.flags |= dns.flags.AA
            if name in self._records:
                answer.answer.append(dns.rrset.from_text_list(name, 60, "IN", "SRV", self._records[name]))
            else:
                answer.set_rcode(dns.rcode.NXDOMAIN)
            self._socket.sendto(answer.to_wire(), client)


@pytest.fixture
def name_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Records], NameServer]]:
    """Let this process ask a name server of its own."""
    servers: list[NameServer] = []

    def start(records: Records) -> NameServer:
        server = NameServer(records)
        servers.append(server)
        resolver = dns.resolver.Resolver(configure=False)
        resolver.nameservers, resolver.port = ["127.0.0.1"], server.port
        monkeypatch.setattr(dns.resolver, "default_resolver", resolver)
        return server

    yield start
    for server in servers:
        server.close()


def test_a_service_record_names_the_nodes_to_begin_with(name_server: Callable[[Records], NameServer]) -> None:
    server = name_server({PLAIN: ["0 0 1234 a.test.", "0 0 11210 b.test."], ENCRYPTED: ["0 0 11207 c.test."]})
    assert set(parse_connection_string("couchbase://cluster.test").seeds()) == {
        Node("a.test", 1234),
        Node("b.test", 11210),
    }
    assert parse_connection_string("couchbases://cluster.test").seeds() == [Node("c.test", 11207)]
    assert server.asked == [PLAIN, ENCRYPTED]


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("couchbase://other.test", [Node("other.test", 11210)]),
        ("couchbase://cluster.test:5", [Node("cluster.test", 5)]),
        ("couchbase://cluster.test,other.test", [Node("cluster.test", 11210), Node("other.test", 11210)]),
    ],
)
def test_hosts_without_a_record_with_a_port_or_in_company_are_taken_as_they_are(
    name_server: Callable[[Records], NameServer], text: str, seeds: list[Node]
) -> None:
    server = name_server({PLAIN: ["0 0 1234 a.test."]})
    assert parse_connection_string(text).seeds() == seeds
    assert server.asked == (["_couchbase._tcp.other.test."] if text.endswith("//other.test") else [])


def test_a_name_server_that_does_not_answer_costs_two_seconds_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        resolver = dns.resolver.Resolver(configure=False)
        resolver.nameservers, resolver.port = ["127.0.0.1"], silent.getsockname()[1]
        monkeypatch.setattr(dns.resolver, "default_resolver", resolver)
        address = parse_connection_string("couchbase://cluster.test")
        assert address.seeds() == [Node("cluster.test", 11210)]
        began = time.monotonic()
        assert address.seeds(0.2) == [Node("cluster.test", 11210)]
        assert time.monotonic() - began < 1.5, "or less, where there is less time"


@pytest.mark.parametrize("place", ["direct", "sdk", "auto"], indirect=True)
def test_each_transport_connects_by_a_record_of_which_one_node_is_dead(
    emulator: RunningEmulator, place: Place, name_server: Callable[[Records], NameServer]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dead = listener.getsockname()[1]
    alive = emulator.kv_addresses[0][1]
    server = name_server({PLAIN: [f"0 0 {dead} localhost.", f"0 0 {alive} localhost."]})
    # The SDK has a resolver of its own, which is led to the name server by options of the connection string.
    text = f"couchbase://cluster.test?dns_nameserver=127.0.0.1&dns_port={server.port}"
    settings = CouchbaseLMCacheConfig.from_dict(place.params | {"connection_string": text}, environ={})
    transport = transports.open_transport(settings, Credentials(USERNAME, PASSWORD), 2 * SECONDS)
    assert (transport.name, transport.notice) == ("direct" if place.transport == "auto" else place.transport, "")
    assert transport.write_json([("d", b"{}")], 0, SECONDS) == [Outcome.OK]
    transport.close()
    assert set(place.documents()) == {"d"}
    assert set(server.asked) == {PLAIN}
