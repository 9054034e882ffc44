"""The one error of the local node that a person is meant to read."""


class ClusterError(RuntimeError):
    """Something about the local node failed; the message says what, where and what to do."""
