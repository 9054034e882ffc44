"""Credentials: read from files at every attempt, and never shown."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from couchbase_lm_cache import credentials
from couchbase_lm_cache.credentials import Credentials, CredentialSource, withhold_password
from couchbase_lm_cache.errors import CredentialsError
from couchbase_lm_cache.settings import CouchbaseLMCacheConfig

VARIABLE = "LMCACHE_COUCHBASE_PASSWORD"


def source(**given: Any) -> CredentialSource:
    base = {"connection_string": "couchbase://cb", "bucket_name": "b"}
    return CredentialSource(CouchbaseLMCacheConfig.from_dict(base | given, environ={}))


def test_a_replaced_secret_is_read_afresh(tmp_path: Path) -> None:
    """As Kubernetes does it: files are symbolic links into a folder that is swapped as a whole."""
    for version, password in (("v1", "old"), ("v2", "new")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "username").write_text("lmcache")
        (tmp_path / version / "password").write_text(password + "\n")
    data = tmp_path / "data"
    data.symlink_to("v1")
    files = source(username_file=str(data / "username"), password_file=str(data / "password"))
    assert files.read() == Credentials("lmcache", "old")
    replacement = tmp_path / "data.new"
    replacement.symlink_to("v2")
    replacement.rename(data)
    assert files.read() == Credentials("lmcache", "new")


def test_spaces_belong_to_a_password_and_line_ends_do_not(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_bytes(b" a b \r\n")
    assert source(username="u", password_file=str(path)).read().password == " a b "


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff"])
def test_a_file_that_holds_nothing_usable_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "password"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CredentialsError, match=r"password_file .*password"):
        source(username="u", password_file=str(path)).read()


def test_the_password_never_shows() -> None:
    assert "hidden" not in repr(Credentials("user", "hidden"))


@pytest.fixture
def _nothing_withheld(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "_withheld", {})


@pytest.mark.usefixtures("_nothing_withheld")
def test_a_withheld_password_leaves_the_environment_and_stays_known() -> None:
    environ = {VARIABLE: "hidden", "PATH": "/bin"}
    assert withhold_password(environ) == {VARIABLE: "hidden", "PATH": "/bin"}
    assert environ == {"PATH": "/bin"}
    assert withhold_password(environ)[VARIABLE] == "hidden"
    environ[VARIABLE] = "changed"
    assert withhold_password(environ)[VARIABLE] == "changed"
    assert withhold_password(environ)[VARIABLE] == "changed"
    assert environ == {"PATH": "/bin"}


@pytest.mark.usefixtures("_nothing_withheld")
def test_without_a_password_in_the_environment_there_is_none() -> None:
    assert withhold_password({"PATH": "/bin"}) == {"PATH": "/bin"}


@pytest.mark.usefixtures("_nothing_withheld")
def test_only_the_adapter_of_the_server_takes_the_password_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from couchbase_lm_cache.l2_adapter import CouchbaseL2AdapterConfig

    params = {"connection_string": "couchbase://cb", "bucket_name": "b", "username": "u"}
    monkeypatch.setenv(VARIABLE, "hidden")
    assert CouchbaseLMCacheConfig.from_dict(params).password == "hidden"
    assert os.environ[VARIABLE] == "hidden"
    for _ in range(2):  # LMCache makes several adapters in one process
        assert CouchbaseL2AdapterConfig.from_dict(params).settings.password == "hidden"
        assert VARIABLE not in os.environ
