"""Compare the time to the first token (TTFT) of computed prompts with that of loaded ones.

Every prompt goes to vLLM A (computed), then to vLLM B (loaded from Couchbase), and with ``--restart-command``
once more to A after its restart. Prints a Markdown table; ``--json`` keeps the raw figures. Exit status 1 when a
prompt that should have been loaded was not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

import measured_chat as chat

_LEAST_SHARE_FROM_CACHE = 0.5
COMPUTED, LOADED, RESTARTED = "computed on A", "loaded by B", "loaded by A after a restart"
Runs = dict[str, list[chat.Measured]]


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    chat.add_server_options(parser)
    parser.add_argument("--prompts", type=int, default=5, help="how many prompts (default 5)")
    parser.add_argument("--json", type=Path, help="file for the raw figures")
    options = parser.parse_args(argv)
    if options.prompts < 1:
        parser.error("--prompts must be at least 1")
    try:
        runs = _run(options)
    except chat.ScriptError as error:
        print(f"The benchmark cannot go on: {error}", file=sys.stderr)
        return 1
    print(f"\n{_table(runs)}")
    if not options.restart_command:
        print("Not measured: after a restart (no --restart-command was given).")
    if options.json:
        options.json.write_text(json.dumps(_figures(runs), indent=2) + "\n")
    missed = [
        f"prompt {number} was not {name}: {measured.share_from_cache:.0%} of it came from the cache"
        for name in runs
        for number, measured in enumerate(runs[name], 1)
        if name != COMPUTED and measured.share_from_cache < _LEAST_SHARE_FROM_CACHE
    ]
    for complaint in missed:
        print(f"FAILED: {complaint}", file=sys.stderr)
    return 1 if missed else 0


def _run(options: argparse.Namespace) -> Runs:
    a, b = chat.servers(options)
    for server in (a, b):
        chat.ask(server, "Say yes.")
    prompts = [chat.new_prompt(int(options.prompt_tokens))[0] for _ in range(options.prompts)]
    runs: Runs = {COMPUTED: [], LOADED: []}
    for prompt in prompts:
        runs[COMPUTED].append(_timed(a, prompt, COMPUTED))
        chat.await_stored(a)
        runs[LOADED].append(_timed(b, prompt, LOADED))
    if options.restart_command:
        chat.restart(options.restart_command, a)
        chat.ask(a, "Say yes.")
        runs[RESTARTED] = [_timed(a, prompt, RESTARTED) for prompt in prompts]
    return runs


def _timed(server: chat.Server, prompt: str, name: str) -> chat.Measured:
    measured = chat.ask(server, prompt)
    print(f"{name}: {measured.answer.ttft_seconds:.2f} s", flush=True)
    return measured


def _table(runs: Runs) -> str:
    computed = statistics.median(_seconds(runs[COMPUTED]))
    lines = [
        "| | prompts | prompt tokens | TTFT median | fastest | slowest | against computed |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, measured in runs.items():
        seconds = _seconds(measured)
        tokens = statistics.median(one.answer.prompt_tokens for one in measured)
        lines.append(
            f"| {name} | {len(measured)} | {tokens:.0f} | {statistics.median(seconds):.2f} s | {min(seconds):.2f} s "
            f"| {max(seconds):.2f} s | {computed / statistics.median(seconds):.1f}x |"
        )
    return "\n".join(lines) + "\n"


def _figures(runs: Runs) -> list[dict[str, object]]:
    return [
        {
            "request": name,
            "prompt": number,
            "prompt_tokens": measured.answer.prompt_tokens,
            "ttft_seconds": measured.answer.ttft_seconds,
            "share_from_cache": measured.share_from_cache,
        }
        for name in runs
        for number, measured in enumerate(runs[name], 1)
    ]


def _seconds(measured: list[chat.Measured]) -> list[float]:
    return [one.answer.ttft_seconds for one in measured]


if __name__ == "__main__":
    sys.exit(main())
