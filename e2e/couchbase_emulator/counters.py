"""What clients did, counted, so that tests can prove that nothing was written."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Mutations(NamedTuple):
    """Successful changes since start, through REST and through the data service."""

    rest_writes: int
    kv_writes: int


@dataclass
class Counters:
    """Counts since start."""

    rest_writes: int = 0
    kv_writes: int = 0
    kv_reads: int = 0
    kv_logins: int = 0
    kv_connections: int = 0
    kv_damaged_answers: int = 0  # by the fault `corrupt_stream`
    kv_trickled_values: int = 0  # by the fault `trickle_seconds`: whose second half was due, client there or not
    rest_requests: Counter[str] = field(default_factory=Counter)  # "METHOD route"
    kv_requests: Counter[str] = field(default_factory=Counter)  # name of the command

    @property
    def mutations(self) -> Mutations:
        """Successful changes so far."""
        return Mutations(self.rest_writes, self.kv_writes)

    def as_json(self) -> dict[str, Any]:
        """Everything, for `GET /_emulator/counters`."""
        return {
            "restWrites": self.rest_writes,
            "kvWrites": self.kv_writes,
            "kvReads": self.kv_reads,
            "kvLogins": self.kv_logins,
            "kvConnections": self.kv_connections,
            "kvDamagedAnswers": self.kv_damaged_answers,
            "kvTrickledValues": self.kv_trickled_values,
            "restRequests": dict(self.rest_requests),
            "kvRequests": dict(self.kv_requests),
        }
