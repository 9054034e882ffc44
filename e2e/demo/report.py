"""What the demo shows at its end: a table and bars in the terminal, a JSON file and a picture."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib as mpl

from e2e.demo.journey import Turn

mpl.use("Agg")
from matplotlib import pyplot as plt

_BAR_WIDTH = 46
_COMPUTED, _LOADED = "#b0b0b0", "#e8590c"


def print_table(turns: list[Turn]) -> None:
    """Print who answered, how much came from the cache, and how much sooner."""
    computed = turns[0].answer.first_token_seconds
    print(f"\n{'':<26}{'prompt':>8}{'from cache':>12}{'first token':>13}{'speed-up':>10}  answer")
    for turn in turns:
        seconds = turn.answer.first_token_seconds
        print(
            f"{turn.label:<26}{turn.answer.prompt_tokens:>8}{turn.cached_tokens:>12}{seconds:>11.2f} s"
            f"{computed / seconds:>9.1f}x  {turn.answer.text!r}"
        )
    print("\ntime to first token")
    longest = max(turn.answer.first_token_seconds for turn in turns)
    for turn in turns:
        seconds = turn.answer.first_token_seconds
        bar = "█" * max(1, round(_BAR_WIDTH * seconds / longest))
        print(f"{turn.label:<26}{bar} {seconds:.2f} s")
    print(flush=True)


def write_result(folder: Path, turns: list[Turn], facts: dict[str, object]) -> None:
    """Write ``result.json`` and ``result.png`` into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {
            "who": turn.label,
            "pod": turn.pod,
            "promptTokens": turn.answer.prompt_tokens,
            "tokensFromCache": turn.cached_tokens,
            "l2HitTokens": int(turn.growth.l2_hit_tokens),
            "firstTokenSeconds": round(turn.answer.first_token_seconds, 3),
            "firstTokenLogprob": turn.answer.first_logprob,
            "answer": turn.answer.text,
        }
        for turn in turns
    ]
    (folder / "result.json").write_text(json.dumps({"turns": rows, **facts}, indent=2) + "\n")
    _draw(folder / "result.png", turns)


def _draw(path: Path, turns: list[Turn]) -> None:
    figure, axes = plt.subplots(figsize=(8, 0.7 + 0.55 * len(turns)), layout="constrained")
    seconds = [turn.answer.first_token_seconds for turn in turns]
    colours = [_LOADED if turn.cached_tokens else _COMPUTED for turn in turns]
    bars = axes.barh([turn.label for turn in turns], seconds, color=colours)
    axes.bar_label(bars, [f"{value:.2f} s" for value in seconds], padding=4)
    axes.invert_yaxis()
    axes.set_xlim(0, max(seconds) * 1.15)
    axes.set_xlabel(
        f"time to first token, {turns[0].answer.prompt_tokens} prompt tokens (orange: KV cache from Couchbase)"
    )
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=140)
    plt.close(figure)
