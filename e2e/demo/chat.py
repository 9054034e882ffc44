"""Ask one vLLM pod over its OpenAI-compatible API and measure the time to the first token."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from e2e.demo.kube import DemoError


@dataclass(frozen=True)
class Answer:
    """What one pod answered; times are seconds, ``first_logprob`` a natural logarithm."""

    text: str
    prompt_tokens: int
    first_token: str
    first_logprob: float
    first_token_seconds: float


def ask(url: str, model: str, prompt: str, *, max_tokens: int = 16, timeout_seconds: float = 180) -> Answer:
    """Stream one greedy chat completion; raise DemoError when the pod refuses or the stream is empty."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "max_tokens": max_tokens,
        "logprobs": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    started = time.monotonic()
    first_seconds, prompt_tokens = 0.0, 0
    pieces: list[str] = []
    first: dict[str, Any] | None = None
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=timeout_seconds) as response:
        if response.status_code != httpx.codes.OK:
            raise DemoError(
                f"the pod answered {response.status_code}: {response.read().decode(errors='replace')[:500]}"
            )
        for event in _events(response):
            prompt_tokens = (event.get("usage") or {}).get("prompt_tokens", prompt_tokens)
            for choice in event.get("choices", []):
                if logprobs := (choice.get("logprobs") or {}).get("content"):
                    first_seconds = first_seconds or time.monotonic() - started
                    first = first or logprobs[0]
                pieces.append(choice["delta"].get("content") or "")
    if first is None:
        raise DemoError("the pod answered without a single token")
    return Answer("".join(pieces).strip(), prompt_tokens, first["token"], first["logprob"], first_seconds)


def _events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))
