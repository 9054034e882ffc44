"""preStop of the LMCache server: stay until vLLM has stopped and nothing is being stored.

On SIGTERM the server drops stores that are queued. Kubernetes runs the preStop hooks of all containers at
the start of termination and stops native sidecars last, so this wait covers vLLM's draining too. It ends
after ``limit`` seconds at the latest, and never fails the termination. A server that is too busy to answer
has stores left. One that does not listen yet is waited for: the first process of a container ignores SIGTERM
until it has a handler, so that the server would start and stay until the grace period is over.

Arguments: vLLM's port, the server's HTTP port, the limit in seconds.
"""

import http.client
import json
import socket
import sys
import time

POLL_SECONDS = 0.5


def is_open(port: int) -> bool:
    """Say whether something listens on a port of this pod, be it too busy to accept."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2):
            return True
    except ConnectionRefusedError:
        return False
    except OSError:
        return True


def has_stores_left(port: int) -> bool:
    """Say whether stores are queued or in flight, or the server is too busy or too young to tell.

    One that counts in a way that this script does not know has none to wait for. One that has ended takes this
    script with it.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/status")
        answer = connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return True
    finally:
        connection.close()
    try:
        controllers = json.loads(answer)["storage_manager"]["store_controllers"].values()
        return any(int(each["pending_keys_count"]) or int(each["in_flight_task_count"]) for each in controllers)
    except (ValueError, LookupError, TypeError, AttributeError):
        return False


def drain(engine_port: int, server_port: int, limit: float) -> None:
    """Wait for vLLM's port to close, then for two looks in a row without stores."""
    deadline = time.monotonic() + limit
    while is_open(engine_port) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    # a key leaves the queue a moment before its store counts as in flight
    quiet_looks = 0
    while quiet_looks < 2 and time.monotonic() < deadline:
        quiet_looks = 0 if has_stores_left(server_port) else quiet_looks + 1
        if quiet_looks < 2:
            time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    drain(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
