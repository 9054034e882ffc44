"""The username and password, from settings or from files that an orchestrator may replace at any time."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from couchbase_lm_cache.errors import CredentialsError

if TYPE_CHECKING:
    from couchbase_lm_cache.settings import CouchbaseLMCacheConfig


@dataclass(frozen=True)
class Credentials:
    """One username with its password; the password never shows in ``repr``."""

    username: str
    password: str = field(repr=False)


class CredentialSource:
    """Reads the credentials afresh on every call: files are small and calls are rare.

    Kubernetes replaces a mounted Secret by swapping a symbolic link, so username and password may be
    read from different versions in that instant; the login then fails and the next attempt reads again.
    """

    def __init__(self, settings: CouchbaseLMCacheConfig) -> None:
        self._settings = settings

    def read(self) -> Credentials:
        """Return the current credentials.

        Raises:
            CredentialsError: a file is missing, unreadable or empty; the message names it.
        """
        settings = self._settings
        return Credentials(
            username=settings.username or _read_file("username_file", settings.username_file),
            password=settings.password or _read_file("password_file", settings.password_file),
        )


def _read_file(setting: str, path: str | None) -> str:
    try:
        # Editors and `echo` end files with a newline that is no part of the secret.
        text = Path(path or "").read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CredentialsError(
            f"{setting} {path} cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8'}"
        ) from None
    if not text:
        raise CredentialsError(f"{setting} {path} is empty")
    return text
