"""Startup probe of vLLM: it answers /health, then one prompt of a full chunk.

LMCache's connector gives its first sign of life with its first transfer. An engine that was never asked
does not notice that its LMCache server was replaced, and its first request then breaks it. The prompt is
the same in every pod: the first one stores it, the others read it, so that a pod that is ready has used
the whole path. It is also what compiles the kernels that the first user would wait for.

A server that refuses the prompt (an API key, a model that completes nothing) is up all the same. One that has not
answered within the time for its start is not asked again: Kubernetes counts failures, and a prompt that hangs would
make each of them twenty times as long.

Arguments: vLLM's port, the model's served name, the length of the prompt in tokens, the time for the start in seconds.
"""

import http.client
import json
import os
import pathlib
import sys

PROMPT_SECONDS = 110
FIRST = 1


def ask(port: int, method: str, path: str, body: "dict[str, object] | None", seconds: float) -> int:
    """Send one request and return the status of the answer; 0 when there is none."""
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("VLLM_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        connection.request(method, path, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        return 0
    else:
        return answer.status
    finally:
        connection.close()


def age_seconds(pid: int) -> float:
    """Return how long ago a process of this container began."""
    uptime = float(pathlib.Path("/proc/uptime").read_text().split()[0])
    # the 22nd field; the command, in parentheses, may hold anything and is the second
    began = int(pathlib.Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    return uptime - began / os.sysconf("SC_CLK_TCK")


def problem(port: int, model: str, tokens: int, startup_seconds: float) -> str:
    """Return why the engine is not ready, or nothing."""
    status = ask(port, "GET", "/health", None, 5)
    if status != http.client.OK:
        return f"vLLM answers {status} to /health" if status else "vLLM does not answer"
    if age_seconds(FIRST) > startup_seconds:
        return f"vLLM has not answered a prompt within {startup_seconds:.0f} s of its start"
    # small ids that every vocabulary has, none of them the usual special tokens
    prompt = [10 + place % 89 for place in range(tokens)]
    body = {"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0}
    status = ask(port, "POST", "/v1/completions", body, PROMPT_SECONDS)
    if not status or status >= http.client.INTERNAL_SERVER_ERROR:
        return f"vLLM answers {status} to a prompt of {tokens} tokens" if status else "vLLM does not answer a prompt"
    return ""


if __name__ == "__main__":
    sys.exit(problem(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])) or 0)
