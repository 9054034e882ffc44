"""Show that vLLM B reuses what vLLM A computed, through Couchbase, and that A still does after a restart.

A long, never-seen prompt with one hidden fact goes to A (computed), then to B (loaded), and with
``--restart-command`` once more to A after its restart. Times to first token, answers, first-token
log-probabilities, counters and LMCache's status go to ``evidence/e2e-<UTC time>/``; so does what LMCache logged
(``--lmcache-log-a``, ``--lmcache-log-b``) and what the bucket held before and after (``--couchbase-url``). Exit
status 0: every later answer came from the cache and equals the first. 1: it did not, or a server cannot be used.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import measured_chat as chat

_LEAST_SHARE_FROM_CACHE = 0.5


@dataclass(frozen=True)
class Phase:
    """One question to one server, with LMCache's status after it."""

    name: str
    expected_from_cache: bool
    measured: chat.Measured
    lmcache_status: dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    """Run the demo and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    chat.add_server_options(parser)
    parser.add_argument("--couchbase-url", help="management port, e.g. http://localhost:8091, to record bucket stats")
    parser.add_argument("--evidence", type=Path, default=Path("evidence"), help="folder for the record of the run")
    options = parser.parse_args(argv)
    prompt, fact = chat.new_prompt(int(options.prompt_tokens))
    folder = options.evidence / time.strftime("e2e-%Y%m%dT%H%M%SZ", time.gmtime())
    both = chat.servers(options)
    try:
        log_starts = [server.log_size() for server in both]
        bucket = [_bucket_stats(options)]
        phases = _run(options, prompt, *both)
        bucket.append(_bucket_stats(options))
        logs = {f"lmcache-{s.name.lower()}.log": s.log_since(start) for s, start in zip(both, log_starts, strict=True)}
    except (chat.ScriptError, OSError) as error:
        print(f"The demo cannot go on: {error}", file=sys.stderr)
        return 1
    complaints = _complaints(phases)
    table = _table(phases, fact)
    run = {"fact": fact, "complaints": complaints, "phases": [asdict(phase) for phase in phases], "bucket": bucket}
    files = {"run.json": json.dumps(run, indent=2) + "\n", "prompt.txt": prompt, "table.md": table}
    _record(folder, files | {name: log for name, log in logs.items() if log})
    print(f"\n{table}\nEvidence: {folder}")
    for complaint in complaints:
        print(f"FAILED: {complaint}", file=sys.stderr)
    return 1 if complaints else 0


def _bucket_stats(options: argparse.Namespace) -> dict[str, Any] | None:
    return chat.bucket_stats(options.couchbase_url) if options.couchbase_url else None


def _run(options: argparse.Namespace, prompt: str, a: chat.Server, b: chat.Server) -> list[Phase]:
    for server in (a, b):
        print(f"vLLM {server.name} serves {chat.served_model(server)}; warming it up")
        chat.ask(server, "Say yes.")
    phases = [_phase("A, computed", a, prompt, expected_from_cache=False)]
    chat.await_stored(a)
    phases.append(_phase("B, loaded", b, prompt, expected_from_cache=True))
    if options.restart_command:
        print("restarting A", flush=True)
        chat.restart(options.restart_command, a)
        chat.ask(a, "Say yes.")
        phases.append(_phase("A restarted, loaded", a, prompt, expected_from_cache=True))
    return phases


def _phase(name: str, server: chat.Server, prompt: str, *, expected_from_cache: bool) -> Phase:
    measured = chat.ask(server, prompt)
    print(f"{name}: first token after {measured.answer.ttft_seconds:.2f} s", flush=True)
    return Phase(name, expected_from_cache, measured, chat.lmcache_status(server))


def _complaints(phases: list[Phase]) -> list[str]:
    first = phases[0]
    found: list[str] = []
    if first.measured.share_from_cache > 0:
        found.append(f"{first.name}: {first.measured.share_from_cache:.0%} of a never-seen prompt came from the cache")
    for phase in phases[1:]:
        if phase.measured.share_from_cache < _LEAST_SHARE_FROM_CACHE:
            found.append(f"{phase.name}: only {phase.measured.share_from_cache:.0%} of the prompt came from the cache")
        if not phase.measured.deltas.get(chat.L2_HIT_TOKENS):
            found.append(f"{phase.name}: LMCache found nothing in Couchbase ({chat.L2_HIT_TOKENS} did not grow)")
        if phase.measured.answer.text != first.measured.answer.text:
            found.append(
                f"{phase.name}: answered {phase.measured.answer.text!r}, computed was {first.measured.answer.text!r}"
            )
    return found


def _table(phases: list[Phase], fact: str) -> str:
    lines = [
        "| request | TTFT | prompt tokens | from cache | L2 hit tokens | answer | first-token log-probability |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for phase in phases:
        answer = phase.measured.answer
        verdict = "right" if fact in answer.text else f"wrong, the fact was {fact}"
        lines.append(
            f"| {phase.name} | {answer.ttft_seconds:.2f} s | {answer.prompt_tokens} "
            f"| {phase.measured.share_from_cache:.0%} | {phase.measured.deltas.get(chat.L2_HIT_TOKENS, 0):.0f} "
            f"| {answer.text} ({verdict}) | {answer.first_logprob:.4f} |"
        )
    return "\n".join(lines) + "\n"


def _record(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_text(content)


if __name__ == "__main__":
    sys.exit(main())
