"""preStop of vLLM: serve until all requests are answered, or end an engine that does not serve yet.

Requests come on connections that are open already, also after the endpoints have forgotten this pod, and vLLM
(0.32) answers those that come after SIGTERM with nothing and status 200. So it is told to end when it is idle. After
``limit`` seconds its engine is ended under the requests that are left: they get an error at once, where SIGTERM lets
them hang until the whole pod is killed.

It loses the SIGTERM that comes while it starts: at first it has no handler, and the first process of a container
ignores such a signal; later what its handler raises (entrypoints/launchers/api_server/entry.py) is swallowed while
it waits for its engine. It would then start, and stay until the grace period is over. Without the processes of its
engine its start fails, which ends the container.

Arguments: vLLM's port, for how many seconds requests may still be sent here, the limit in seconds.
"""

import contextlib
import http.client
import os
import pathlib
import re
import signal
import socket
import sys
import time

POLL_SECONDS = 0.5
FIRST = 1
REQUESTS = re.compile(rb"^vllm:num_requests_(?:running|waiting)(?:\{[^}]*\})? ([-+.\deE]+)$", re.MULTILINE)


def is_open(port: int) -> bool:
    """Say whether vLLM takes requests; one with too many to take another does."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2):
            return True
    except ConnectionRefusedError:
        return False
    except OSError:
        return True


def is_idle(port: int) -> bool:
    """Say whether vLLM counts no request; one that does not tell may have some."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/metrics")
        counts = REQUESTS.findall(connection.getresponse().read())
        return bool(counts) and not any(float(count) for count in counts)
    except (OSError, ValueError, http.client.HTTPException):
        return False
    finally:
        connection.close()


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


def send(signal_number: int, pid: int) -> None:
    """Send a signal to a process that may have ended."""
    with contextlib.suppress(OSError):
        os.kill(pid, signal_number)


def has_finished(port: int, serving_seconds: float, limit: float) -> bool:
    """Wait until requests are sent elsewhere and all that came are answered; False when that takes too long."""
    deadline = time.monotonic() + limit
    time.sleep(min(serving_seconds, limit))
    # a request is not counted yet when it has just come, and what it left to store is copied after its answer
    idle_looks = 0
    while idle_looks < 2 and is_open(port):
        if time.monotonic() > deadline:
            return False
        idle_looks = idle_looks + 1 if is_idle(port) else 0
        time.sleep(POLL_SECONDS)
    return True


def stop(port: int, serving_seconds: float, limit: float) -> None:
    """Return when SIGTERM ends vLLM well; else vLLM has ended before that, and this with it."""
    is_late = is_open(port) and not has_finished(port, serving_seconds, limit)
    while is_late or not is_open(port):
        for pid in descendants(FIRST):
            send(signal.SIGKILL, pid)
        if not is_late:
            send(signal.SIGTERM, FIRST)
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    stop(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
