"""The username and password, from settings or from files that an orchestrator may replace at any time."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from couchbase_lm_cache.errors import CredentialsError

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from couchbase_lm_cache.settings import CouchbaseLMCacheConfig

_PASSWORD_VARIABLE = "LMCACHE_COUCHBASE_PASSWORD"  # noqa: S105  # the variable's name, not its value
_withheld: dict[str, str] = {}
_withholding = threading.Lock()


def withhold_password(environ: MutableMapping[str, str] | None = None) -> dict[str, str]:
    """Remove the password from the process environment and return the environment as it was, password included.

    LMCache's server shows ``os.environ`` to everybody who can reach its HTTP port, at ``/env``. What was
    removed stays known to this process, so that later calls return it as well; a new value in the
    environment replaces it. Only for the owner of a server process: a library must not change the
    environment of its user. The kernel's copy (``/proc/<pid>/environ``) remains, readable to the same user.

    Args:
        environ: what to remove it from; by default ``os.environ``.
    """
    environ = os.environ if environ is None else environ
    with _withholding:
        password = environ.pop(_PASSWORD_VARIABLE, None)
        if password:
            _withheld[_PASSWORD_VARIABLE] = password
        return {**environ, **_withheld}


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
