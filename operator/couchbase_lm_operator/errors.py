"""The exceptions that the shells raise and ``reconcile`` understands.

::

    OperatorError
    ├── SettingsError        the environment of the operator is wrong: the process must not start
    └── ClusterError         the Kubernetes API server answered with an error, or did not answer
        ├── ClusterRefusedError   400, 403, 405, 413, 422: the request is wrong; repeating it does not help
        ├── ClusterConflictError  409: somebody else wrote first; a new look decides
        ├── ClusterGoneError      404, 410: the object or the resource version no longer exists
        └── ClusterBusyError      429, 5xx, no connection, time-out: repeat later

No message of these carries a Secret's value: they are built from names and from the parsed fields of
the API server's ``Status`` object.
"""

from __future__ import annotations


class OperatorError(Exception):
    """The root of everything this operator raises on purpose."""


class SettingsError(OperatorError):
    """A setting is missing or wrong; the message names the variable."""


class ClusterError(OperatorError):
    """The Kubernetes API server refused a request or could not be asked.

    ``status`` is the HTTP status (0 when there was no answer), ``reason`` the machine-readable reason of
    the ``Status`` object, ``message`` its sentence, ``what`` the request in words.
    """

    def __init__(self, what: str, status: int, reason: str, message: str) -> None:
        super().__init__(f"{what}: {status} {reason}: {message}")
        self.what = what
        self.status = status
        self.reason = reason
        self.message = message


class ClusterRefusedError(ClusterError):
    """The request itself is wrong or not permitted."""


class ClusterConflictError(ClusterError):
    """The object changed since it was read."""


class ClusterGoneError(ClusterError):
    """The object, or the resource version a watch started from, is gone."""


class ClusterBusyError(ClusterError):
    """The API server is overloaded, failing or unreachable."""


_BY_STATUS: dict[int, type[ClusterError]] = {
    404: ClusterGoneError,
    409: ClusterConflictError,
    410: ClusterGoneError,
    429: ClusterBusyError,
}
# The API server answers 500 to an applied object with a field that the schema does not have.
_SCHEMA_REFUSAL = "failed to create typed patch object"


def cluster_error(what: str, status: int, reason: str, message: str) -> ClusterError:
    """Return the exception that fits an HTTP status of the API server."""
    kind = _BY_STATUS.get(status)
    if kind is None:
        is_our_fault = 0 < status < 500 or message.startswith(_SCHEMA_REFUSAL)
        kind = ClusterRefusedError if is_our_fault else ClusterBusyError
    return kind(what, status, reason, message)
