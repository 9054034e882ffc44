"""The tests against a given Couchbase: they pass on one that works, fail on one that does not, and else stay away."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BUCKET, PASSWORD, SCOPE, USERNAME, Place

PACKAGE = Path(__file__).parents[1]

pytestmark = pytest.mark.timeout(240)


def live_tests(**environment: str) -> tuple[int, str]:
    """Run them with these variables alone; return pytest's exit status and what it printed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LMCACHE_COUCHBASE_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/live"],
        cwd=PACKAGE,
        env=kept | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    return done.returncode, done.stdout + done.stderr


def given(place: Place) -> dict[str, str]:
    """The variables of the README, for the place of this test."""
    return {
        "LMCACHE_COUCHBASE_LIVE_TESTS": "1",
        "LMCACHE_COUCHBASE_CONNSTR": place.emulator.connection_string,
        "LMCACHE_COUCHBASE_USERNAME": USERNAME,
        "LMCACHE_COUCHBASE_PASSWORD": PASSWORD,
        "LMCACHE_COUCHBASE_BUCKET": BUCKET,
        "LMCACHE_COUCHBASE_SCOPE": SCOPE,
        "LMCACHE_COUCHBASE_COLLECTION": place.collection,
    }


@pytest.mark.parametrize("place", ["auto"], indirect=True)
def test_they_pass_on_a_couchbase_that_works_and_leave_nothing(place: Place) -> None:
    status, said = live_tests(**given(place))
    assert (status, "12 passed" in said) == (0, True), said
    assert place.documents() == {}


@pytest.mark.parametrize("place", ["auto"], indirect=True)
def test_they_fail_with_a_wrong_password(place: Place) -> None:
    status, said = live_tests(**given(place) | {"LMCACHE_COUCHBASE_PASSWORD": "wrong"})
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "passed" not in said.splitlines()[-1]


def test_nothing_is_written_unless_it_is_asked_for() -> None:
    assert live_tests()[0] == pytest.ExitCode.NO_TESTS_COLLECTED
