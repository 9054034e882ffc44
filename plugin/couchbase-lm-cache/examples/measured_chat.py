"""What the vLLM scripts share: never-seen prompts, timed answers, and the counters that prove a cache hit.

Standard library only. Counters are Prometheus totals: vLLM's ``vllm:external_prefix_cache_*`` in tokens and
LMCache's own. One that was never used does not exist yet and counts as 0.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import secrets
import shlex
import subprocess
import time
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HIT_TOKENS = "vllm:external_prefix_cache_hits_total"
L2_HIT_TOKENS = "lmcache_mp_lookup_hit_l2_tokens_total"
_RECORDED = re.compile(r"^(vllm:external_prefix_cache_\w+_total|lmcache_mp_\w*(?:l2|lookup)\w*_total)$")
_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{[^}]*\})? ([-+.\deE]+)$", re.MULTILINE)
_PLACES = ("harbour", "orchard", "mill", "library", "station", "market", "bakery", "bridge", "garden", "workshop")
_DEEDS = (
    "swept the yard before noon and left the gate open for the carts",
    "counted the barrels twice and wrote the sum on a slate",
    "mended a window that the wind had broken the week before",
    "carried three baskets of apples up the hill and rested there",
)
_TOKENS_PER_SENTENCE = 20
_STORE_QUIET_SECONDS = 3.0


class ScriptError(Exception):
    """A server cannot be used, or did not do what the script shows; the message says which and what."""


@dataclass(frozen=True)
class Server:
    """One vLLM server, and the HTTP port of the LMCache server next to it."""

    name: str
    vllm_url: str
    lmcache_url: str
    lmcache_log: Path | None = None

    def log_size(self) -> int:
        """Return how long LMCache's log is by now, in bytes; 0 when none was named."""
        return self.lmcache_log.stat().st_size if self.lmcache_log else 0

    def log_since(self, start: int) -> str:
        """Return what LMCache has logged behind byte ``start``; a log that is shorter now was begun again."""
        if self.lmcache_log is None:
            return ""
        content = self.lmcache_log.read_bytes()
        return content[start if start <= len(content) else 0 :].decode(errors="replace")


@dataclass(frozen=True)
class Answer:
    """What a server answered; ``ttft_seconds`` is the time to the first token, ``first_logprob`` a natural log."""

    text: str
    prompt_tokens: int
    first_token: str
    first_logprob: float
    ttft_seconds: float


@dataclass(frozen=True)
class Measured:
    """An answer, and by how much the server's counters grew meanwhile."""

    answer: Answer
    deltas: dict[str, float]

    @property
    def share_from_cache(self) -> float:
        """Share of the prompt's tokens that vLLM took from LMCache, 0 to 1."""
        return self.deltas.get(HIT_TOKENS, 0.0) / max(self.answer.prompt_tokens, 1)


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name servers A and B; each falls back to an environment variable."""
    for option, default, meaning in (
        ("vllm-a", "http://localhost:8100", "vLLM server A"),
        ("vllm-b", "http://localhost:8200", "vLLM server B"),
        ("lmcache-a", "http://localhost:8080", "HTTP port of LMCache server A (metrics and status)"),
        ("lmcache-b", "http://localhost:8081", "HTTP port of LMCache server B"),
        ("lmcache-log-a", "", "file that LMCache server A logs to, for the record"),
        ("lmcache-log-b", "", "file that LMCache server B logs to, for the record"),
        ("restart-command", "", "command that restarts LMCache A and vLLM A; without it no restart is shown"),
        ("prompt-tokens", "3000", "about how long a prompt is"),
    ):
        variable = option.replace("-", "_").upper() + ("_URL" if default.startswith("http") else "")
        parser.add_argument(
            f"--{option}",
            default=os.environ.get(variable, default),
            help=f"{meaning} (environment {variable}, default {default or 'none'})",
        )


def servers(options: argparse.Namespace) -> tuple[Server, Server]:
    """Return servers A and B as the options name them."""
    log_a, log_b = (Path(name) if name else None for name in (options.lmcache_log_a, options.lmcache_log_b))
    return (
        Server("A", options.vllm_a, options.lmcache_a, log_a),
        Server("B", options.vllm_b, options.lmcache_b, log_b),
    )


def new_prompt(tokens: int) -> tuple[str, str]:
    """Return a prompt of about ``tokens`` tokens that nobody has seen before, and the fact hidden in it.

    It begins with random words: the key of a chunk is a hash of all tokens up to its end, so no cache has any of it.
    """
    chance = secrets.SystemRandom()
    fact = str(chance.randrange(1000, 10000))
    sentences = [
        f"At the {chance.choice(_PLACES)}, a clerk from the {chance.choice(_PLACES)} {chance.choice(_DEEDS)}."
        for _ in range(tokens // _TOKENS_PER_SENTENCE)
    ]
    hidden = f"The secret code of the lighthouse is {fact}. Remember it."
    sentences.insert(len(sentences) * 4 // 5, hidden)
    question = "Question: What is the secret code of the lighthouse? Answer with the number only."
    return f"Notebook {secrets.token_hex(8)}. {' '.join(sentences)}\n\n{question}", fact


def served_model(server: Server) -> str:
    """Return the name of the first model that the server serves."""
    return str(json.loads(_get(f"{server.vllm_url}/v1/models"))["data"][0]["id"])


def ask(server: Server, prompt: str, *, timeout_seconds: float = 600) -> Measured:
    """Stream one greedy answer and count what the caches did for it.

    Raises:
        ScriptError: a server does not answer, or answers without a token.
    """
    model = served_model(server)
    before = counters(server)
    answer = _stream(server, model, prompt, timeout_seconds)
    return Measured(answer, {name: value - before.get(name, 0.0) for name, value in counters(server).items()})


def counters(server: Server) -> dict[str, float]:
    """Return the totals of vLLM and LMCache that concern the cache, summed over their labels."""
    exposition = _get(f"{server.vllm_url}/metrics") + "\n" + _get(f"{server.lmcache_url}/metrics")
    summed: dict[str, float] = {}
    for name, value in _SAMPLE.findall(exposition):
        if _RECORDED.match(name):
            summed[name] = summed.get(name, 0.0) + float(value)
    return summed


def lmcache_status(server: Server) -> dict[str, Any]:
    """Return what LMCache's ``/status`` says."""
    status: dict[str, Any] = json.loads(_get(f"{server.lmcache_url}/status"))
    return status


def bucket_stats(couchbase_url: str) -> dict[str, Any]:
    """Return items, memory and operations of the bucket ``LMCACHE_COUCHBASE_BUCKET``, as Couchbase's REST API has them.

    ``couchbase_url`` is that of the management port; user and password are those of the adapter.
    """
    name = os.environ.get("LMCACHE_COUCHBASE_BUCKET", "")
    user, password = (os.environ.get(f"LMCACHE_COUCHBASE_{part}", "") for part in ("USERNAME", "PASSWORD"))
    request = urllib.request.Request(f"{couchbase_url}/pools/default/buckets/{urllib.parse.quote(name, safe='')}")
    request.add_header("Authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())
    stats: dict[str, Any] = json.loads(_get(request))["basicStats"]
    return stats


def await_stored(server: Server, timeout_seconds: float = 120) -> None:
    """Wait until LMCache has stopped writing to its L2: stores run in the background, after the answer.

    Raises:
        ScriptError: it still writes after ``timeout_seconds``.
    """
    deadline = time.monotonic() + timeout_seconds
    last, since = _stores(server), time.monotonic()
    while time.monotonic() - since < _STORE_QUIET_SECONDS:
        if time.monotonic() > deadline:
            raise ScriptError(f"LMCache {server.name} still writes to Couchbase after {timeout_seconds:.0f} s")
        time.sleep(0.25)
        if (now := _stores(server)) != last:
            last, since = now, time.monotonic()


def restart(command: str, server: Server, timeout_seconds: float = 900) -> None:
    """Run the command that restarts ``server``, then wait until it answers; raise ScriptError if it does not."""
    done = subprocess.run(shlex.split(command), check=False)
    if done.returncode:
        raise ScriptError(f"the restart command ended with {done.returncode}: {command}")
    deadline = time.monotonic() + timeout_seconds
    while complaint := _complaint(server):
        if time.monotonic() > deadline:
            raise ScriptError(f"after the restart: {complaint}")
        time.sleep(1)


def _complaint(server: Server) -> str:
    try:
        served_model(server)
        counters(server)
    except ScriptError as error:
        return str(error)
    return ""


def _stores(server: Server) -> float:
    return sum(value for name, value in counters(server).items() if "l2_store" in name)


def _stream(server: Server, model: str, prompt: str, timeout_seconds: float) -> Answer:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "max_tokens": 16,
        "logprobs": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{server.vllm_url}/v1/chat/completions", json.dumps(body).encode(), headers)
    ttft_seconds, prompt_tokens, pieces = 0.0, 0, []
    first: dict[str, Any] | None = None
    started = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=timeout_seconds) as response:
            for line in response:
                event = _event(line)
                prompt_tokens = (event.get("usage") or {}).get("prompt_tokens", prompt_tokens)
                for choice in event.get("choices", []):
                    pieces.append(choice["delta"].get("content") or "")
                    if first is None and (content := (choice.get("logprobs") or {}).get("content")):
                        first, ttft_seconds = content[0], time.monotonic() - started
    except OSError as error:
        raise ScriptError(f"vLLM {server.name} at {server.vllm_url} did not answer: {error}") from error
    if first is None:
        raise ScriptError(f"vLLM {server.name} at {server.vllm_url} answered without a single token")
    return Answer("".join(pieces).strip(), prompt_tokens, first["token"], first["logprob"], ttft_seconds)


def _event(line: bytes) -> dict[str, Any]:
    text = line.decode().strip()
    if not text.startswith("data: ") or text == "data: [DONE]":
        return {}
    event: dict[str, Any] = json.loads(text.removeprefix("data: "))
    return event


def _get(url: str | urllib.request.Request) -> str:
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            return str(response.read().decode())
    except OSError as error:
        named = url if isinstance(url, str) else url.full_url
        raise ScriptError(f"{named} cannot be read: {error}") from error
