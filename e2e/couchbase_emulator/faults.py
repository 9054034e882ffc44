"""Faults that can be switched on while the emulator runs."""

from dataclasses import dataclass, fields
from typing import Any

FOREVER = -1


@dataclass
class Faults:
    """Switches; counts run down with each use, `FOREVER` stays on, 0 is off.

    Plain attributes: they may be set from any thread.
    """

    slow_seconds: float = 0.0  # every key-value answer comes this much later
    http_slow_seconds: float = 0.0  # every REST answer comes this much later
    hang: int = 0  # key-value requests of any kind, logins too, that get no answer
    drop: int = 0  # key-value document requests that get no answer at all
    disconnect: int = 0  # key-value document requests answered by closing the connection
    tmpfail: int = 0  # mutations answered with a temporary failure
    not_my_vbucket: int = 0  # document requests answered with "not my vBucket" and the current map
    auth_failures: int = 0  # key-value logins refused
    corrupt_values: int = 0  # reads whose value comes back with one byte changed
    cut_values: int = 0  # reads whose connection closes in the middle of the value
    http_503: int = 0  # REST requests answered 503
    http_redirect: int = 0  # REST requests answered with a redirect to another host
    http_drop: int = 0  # REST requests whose connection is closed without an answer
    bucket_still_exists: int = 0  # bucket creations answered 500: the namesake still shuts down
    bucket_delete_incomplete: int = 0  # bucket deletions answered 500 although they go on
    user_propagation_delay_seconds: float = 0.0  # until the first data node knows a changed user, twice that the second
    manifest_propagation_delay_seconds: float = 0.0  # the same for scopes and collections
    bucket_warmup_seconds: float = 0.0  # from 202 to a healthy bucket
    bucket_delete_seconds: float = 0.0  # how long a deletion takes; name and memory are held meanwhile

    def take(self, name: str) -> bool:
        """Whether the fault `name` strikes now; uses up one of its counts."""
        count: int = getattr(self, name)
        if count == 0:
            return False
        if count > 0:
            setattr(self, name, count - 1)
        return True

    def update(self, values: dict[str, Any]) -> None:
        """Set several switches; raises ValueError naming an unknown switch or a value that is no number."""
        known = {item.name: item.type for item in fields(self)}
        for name, value in values.items():
            if name not in known:
                raise ValueError(f"unknown fault {name!r}; known: {', '.join(sorted(known))}")
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(  # noqa: TRY004 - one kind of error for everything wrong in the request
                    f"fault {name!r} needs a number"
                )
        for name, value in values.items():
            setattr(self, name, float(value) if known[name] in ("float", float) else int(value))

    def clear(self) -> None:
        """Switch everything off."""
        for item in fields(self):
            setattr(self, item.name, item.default)
