"""preStop of vLLM: serve on until nobody is sent here any more, or end an engine that does not serve yet.

vLLM loses the SIGTERM that comes while it starts: at first it has no handler, and the first process of a
container ignores such a signal; later what its handler raises (0.32, entrypoints/launchers/api_server/entry.py)
is swallowed while it waits for its engine. It would then start, and stay until the grace period is over.
Without the processes of its engine its start fails, which ends the container.

Arguments: vLLM's port, for how many seconds requests may still be sent here.
"""

import contextlib
import os
import pathlib
import signal
import socket
import sys
import time

POLL_SECONDS = 0.5
FIRST = 1


def is_open(port: int) -> bool:
    """Say whether vLLM takes requests."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2):
            return True
    except OSError:
        return False


def parents() -> "dict[int, int]":
    """Return the parent of every process that this container sees."""
    found = {}
    for process in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            # the command, in parentheses, may hold anything; state and parent follow it
            found[int(process.name)] = int((process / "stat").read_bytes().rpartition(b")")[2].split()[1])
    return found


def descendants(of: int) -> "list[int]":
    """Return the processes that a process has started, and those that they have started."""
    parent_of = parents()
    found = [of]
    for each in found:
        found += [pid for pid, parent in parent_of.items() if parent == each]
    return found[1:]


def stop(port: int, serving_seconds: float) -> None:
    """Return when SIGTERM ends vLLM well; what did not serve yet has ended before that, and this with it."""
    if is_open(port):
        time.sleep(serving_seconds)
    while not is_open(port):
        for pid in descendants(FIRST):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    stop(int(sys.argv[1]), float(sys.argv[2]))
