"""One command at a time, across checkouts."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster.progress import CLUSTER


@contextmanager
def exclusive(file: Path, *, waiting: str) -> Iterator[None]:
    """Hold a lock on the file; say `waiting` when another process has it. The kernel drops the lock of a killed one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            CLUSTER.say(waiting)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
