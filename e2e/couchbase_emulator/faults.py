"""Faults that can be switched on while the emulator runs."""

import random
from dataclasses import dataclass, fields
from typing import Any

FOREVER = -1


@dataclass
class Faults:
    """Switches; counts run down with each use, `FOREVER` stays on, 0 is off.

    Plain attributes: they may be set from any thread.
    """

    slow_seconds: float = 0.0  # every key-value answer comes this much later
    trickle_seconds: float = 0.0  # of every value of 16 KiB and more the second half comes this much after the first
    http_slow_seconds: float = 0.0  # every REST answer comes this much later
    hang: int = 0  # key-value requests of any kind, logins too, that get no answer
    drop: int = 0  # key-value document requests that get no answer at all
    disconnect: int = 0  # key-value document requests answered by closing the connection
    tmpfail: int = 0  # mutations answered with a temporary failure
    tmpfail_reads: int = 0  # reads answered with a temporary failure
    out_of_memory: int = 0  # mutations refused because the bucket is above its quota (ENOMEM)
    out_of_memory_reads: int = 0  # reads refused the same way
    refusals: int = 0  # document requests answered with `refusal_status` instead of being carried out
    refusal_status: int = 0x84  # EINTERNAL; any number, also one that no server knows
    wrong_opaques: int = 0  # document requests whose answer bears the opaque of no request
    unknown_hellos: int = 0  # HELLO requests answered with "unknown command"
    not_my_vbucket: int = 0  # document requests answered with "not my vBucket" and the current map
    auth_failures: int = 0  # key-value logins refused
    corrupt_values: int = 0  # reads whose value comes back with one byte changed
    cut_values: int = 0  # reads whose connection closes in the middle of the value
    extra_bytes: int = 0  # every value read is longer than the stored one by so many; below 0: shorter
    corrupt_stream: float = 0.0  # share of key-value answers, logins included, in which 1 to 4 random bytes change,
    # anywhere, the header too
    corrupt_from_byte: int = 0  # first byte of an answer that these changes may hit; 24: only what follows the header
    corrupt_documents_only: int = 0  # 1: only answers to document requests that were carried out
    corrupt_seed: int = 0  # seed of these changes; setting it starts the sequence again
    http_503: int = 0  # REST requests answered 503
    http_redirect: int = 0  # REST requests answered with a redirect to another host
    http_drop: int = 0  # REST requests whose connection is closed without an answer
    bucket_still_exists: int = 0  # bucket creations answered 500: the namesake still shuts down
    bucket_delete_incomplete: int = 0  # bucket deletions answered 500 although they go on
    user_propagation_delay_seconds: float = 0.0  # until the first data node knows a changed user, twice that the second
    manifest_propagation_delay_seconds: float = 0.0  # the same for scopes and collections
    bucket_warmup_seconds: float = 0.0  # from 202 to a healthy bucket
    bucket_delete_seconds: float = 0.0  # how long a deletion takes; name and memory are held meanwhile

    def __post_init__(self) -> None:
        self._random = random.Random(self.corrupt_seed)

    def damage(self, frame: bytearray) -> bool:
        """Change random bytes of an outgoing frame if `corrupt_stream` strikes now; says whether it did."""
        first = self.corrupt_from_byte
        if self._random.random() >= self.corrupt_stream or first >= len(frame):
            return False
        for _ in range(self._random.randint(1, 4)):
            frame[self._random.randrange(first, len(frame))] ^= self._random.randint(1, 255)
        return True

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
        if "corrupt_seed" in values:
            self._random.seed(self.corrupt_seed)

    def clear(self) -> None:
        """Switch everything off."""
        for item in fields(self):
            setattr(self, item.name, item.default)
        self._random.seed(self.corrupt_seed)
