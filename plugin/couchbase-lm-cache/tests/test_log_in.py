"""Logging in to a server that offers this or that mechanism, with both transports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from conftest import BUCKET, PASSWORD, SCOPE, USERNAME, Place, prepare

from couchbase_lm_cache.buffers import GuardedBuffer
from couchbase_lm_cache.credentials import Credentials
from couchbase_lm_cache.errors import ConnectError
from couchbase_lm_cache.settings import CouchbaseLMCacheConfig
from couchbase_lm_cache.sharding import checksum
from couchbase_lm_cache.transport import Outcome, ShardRead, ShardWrite, Transport
from couchbase_lm_cache.transports import open_transport
from e2e.couchbase_emulator.running import RunningEmulator, running_emulator

SECONDS = 10.0
CONTENT = b"content" * 100
ODD_USERNAME, ODD_PASSWORD = "a,b=c", "pässwörd , = \u2713"


@contextmanager
def server(*mechanisms: str, tls: bool = False) -> Iterator[RunningEmulator]:
    with running_emulator(sasl_mechanisms=mechanisms, tls=tls) as emulator:
        prepare(emulator)
        emulator.create_collection(BUCKET, SCOPE, "log-in")
        yield emulator


def log_in(
    emulator: RunningEmulator, transport: str, credentials: Credentials, *, tls: bool = False, seconds: float = SECONDS
) -> Transport:
    params = Place(emulator, "log-in", transport).params
    if tls:
        params |= {"connection_string": emulator.tls_connection_string, "tls_ca_file": str(emulator.ca_path)}
    return open_transport(CouchbaseLMCacheConfig.from_dict(params, environ={}), credentials, seconds)


def assert_that_it_works(transport: Transport) -> None:
    source, memory = GuardedBuffer(memoryview(bytearray(CONTENT))), bytearray(len(CONTENT))
    assert transport.write([ShardWrite("d", source, 0, len(CONTENT))], 0, SECONDS) == [Outcome.OK]
    target = GuardedBuffer(memoryview(memory))
    assert transport.read_into([ShardRead("d", target, 0, len(CONTENT), checksum(CONTENT))], SECONDS) == [Outcome.OK]
    assert memory == CONTENT


@pytest.mark.parametrize(
    ("transport", "mechanism"),
    [("direct", "SCRAM-SHA1"), ("direct", "SCRAM-SHA256"), ("direct", "SCRAM-SHA512"), ("sdk", "SCRAM-SHA512")],
)
def test_each_mechanism_lets_in_who_knows_the_password_and_nobody_else(transport: str, mechanism: str) -> None:
    with server(mechanism) as emulator:
        emulator.counters.kv_requests.clear()
        good = log_in(emulator, transport, Credentials(USERNAME, PASSWORD))
        assert_that_it_works(good)
        good.close()
        assert emulator.counters.kv_requests["SASL_STEP"] > 0
        logins = emulator.counters.kv_logins
        assert logins > 0
        for wrong in (Credentials(USERNAME, PASSWORD + "x"), Credentials("stranger", PASSWORD)):
            with pytest.raises(ConnectError, match="refused the username or password"):
                log_in(emulator, transport, wrong, seconds=3.0)
        assert emulator.counters.kv_logins == logins


@pytest.mark.parametrize(
    ("transport", "mechanism"),
    [
        ("direct", "SCRAM-SHA1"),
        ("direct", "SCRAM-SHA256"),
        ("direct", "SCRAM-SHA512"),
        ("direct", "PLAIN"),
        ("sdk", "PLAIN"),
    ],
)
def test_tls_goes_with_each_mechanism(transport: str, mechanism: str) -> None:
    with server(mechanism, tls=True) as emulator:
        good = log_in(emulator, transport, Credentials(USERNAME, PASSWORD), tls=True)
        assert_that_it_works(good)
        good.close()


@pytest.mark.parametrize(("mechanism", "tls"), [("SCRAM-SHA1", False), ("SCRAM-SHA256", True)])
def test_the_sdk_tries_its_first_choice_only_and_ends_with_a_reason(mechanism: str, *, tls: bool) -> None:
    """SCRAM-SHA512, or PLAIN over TLS; a server that offers neither is for the direct transport."""
    with server(mechanism, tls=tls) as emulator:
        with pytest.raises(ConnectError, match="refused the username or password"):
            log_in(emulator, "sdk", Credentials(USERNAME, PASSWORD), tls=tls, seconds=3.0)
        log_in(emulator, "direct", Credentials(USERNAME, PASSWORD), tls=tls).close()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA1", "SCRAM-SHA512"])
def test_names_and_passwords_of_any_characters(mechanism: str) -> None:
    with server(mechanism) as emulator:
        emulator.create_user(ODD_USERNAME, ODD_PASSWORD, f"data_reader[{BUCKET}],data_writer[{BUCKET}]")
        good = log_in(emulator, "direct", Credentials(ODD_USERNAME, ODD_PASSWORD))
        assert_that_it_works(good)
        good.close()


@pytest.mark.parametrize("transport", ["direct", "sdk"])
def test_the_strongest_mechanism_offered_is_taken_where_the_line_can_be_overheard(transport: str) -> None:
    with server("PLAIN", "SCRAM-SHA1", "SCRAM-SHA256", "SCRAM-SHA512") as emulator:
        emulator.counters.kv_requests.clear()
        good = log_in(emulator, transport, Credentials(USERNAME, PASSWORD))
        good.close()
        assert emulator.counters.kv_requests["SASL_AUTH"] == emulator.counters.kv_requests["SASL_STEP"] > 0


def test_a_password_is_not_sent_in_clear_text_to_a_server_that_wants_nothing_else() -> None:
    with server("PLAIN") as emulator:
        emulator.counters.kv_requests.clear()
        with pytest.raises(ConnectError, match="use couchbases://"):
            log_in(emulator, "direct", Credentials(USERNAME, PASSWORD), seconds=1.0)
        assert emulator.counters.kv_requests["SASL_LIST_MECHS"] > 0
        assert emulator.counters.kv_requests["SASL_AUTH"] == 0
