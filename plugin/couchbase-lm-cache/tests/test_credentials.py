"""Credentials: read from files at every attempt, and never shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from couchbase_lm_cache.credentials import Credentials, CredentialSource
from couchbase_lm_cache.errors import CredentialsError
from couchbase_lm_cache.settings import CouchbaseLMCacheConfig


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
    credentials = source(username_file=str(data / "username"), password_file=str(data / "password"))
    assert credentials.read() == Credentials("lmcache", "old")
    replacement = tmp_path / "data.new"
    replacement.symlink_to("v2")
    replacement.rename(data)
    assert credentials.read() == Credentials("lmcache", "new")


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
