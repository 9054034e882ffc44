"""Run a command to its end and turn a failure into a readable error."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from e2e.cluster.errors import ClusterError

_LAST_LINES = 25


def run(
    arguments: Sequence[str | Path],
    *,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_seconds: float | None = None,
) -> str:
    """Run a command and return its standard output.

    Raises:
        ClusterError: the command is missing, ended with another status than 0 or overran `timeout_seconds`;
            the message carries the last lines of what it printed.
    """
    line = [str(argument) for argument in arguments]
    shown = " ".join(line[:6]) + (" …" if len(line) > 6 else "")
    try:
        done = subprocess.run(
            line, input=stdin, env=env, cwd=cwd, timeout=timeout_seconds, capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise ClusterError(f"`{shown}`: {error.filename} was not found; install it or run `make cluster`") from error
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"`{shown}` did not end within {timeout_seconds} s") from error
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-_LAST_LINES:])
        raise ClusterError(f"`{shown}` ended with status {done.returncode}:\n{said}")
    return done.stdout
