"""Probe of the LMCache server, which listens on loopback only: fails with a sentence, not with a traceback.

Argument: the server's HTTP port.
"""

import http.client
import sys


def problem(port: int) -> str:
    """Return why the server is not healthy, or nothing."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/healthcheck")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"the LMCache server does not answer: {error}"
    finally:
        connection.close()
    return "" if status == http.client.OK else f"the LMCache server answers {status}"


if __name__ == "__main__":
    sys.exit(problem(int(sys.argv[1])) or 0)
