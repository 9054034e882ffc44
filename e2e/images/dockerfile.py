"""Read as much of a Dockerfile as it takes to know which of its lines an image depends on. Pure."""

from __future__ import annotations

import re

_STAGE = re.compile(r"^FROM\s+(?P<parent>\S+)\s+AS\s+(?P<name>\S+)", re.IGNORECASE)
_OTHER_STAGE = re.compile(r"(?:--from=|\bfrom=)(?P<name>[^\s,]+)")

_COPY_FROM = re.compile(r"^COPY\s+--from=\S+\s+(?P<source>\S+)\s+(?P<destination>\S+)$")


def lines_of_target(text: str, target: str) -> list[str]:
    """Return the lines before the first stage and those of every stage that ``target`` is built from.

    Comments and blank lines are left out: they change no image. Raises ``KeyError`` when no stage is called
    ``target``.
    """
    preamble, stages = _split(text)
    wanted: set[str] = set()
    pending = [target]
    while pending:
        name = pending.pop()
        if name in wanted:
            continue
        wanted.add(name)
        pending += [other for line in stages[name] for other in _named_stages(line) if other in stages]
    return preamble + [line for name, lines in stages.items() if name in wanted for line in lines]


def copies_of_stage(text: str, stage: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the parent of ``stage`` and the (source, destination) of its ``COPY --from`` lines.

    Raises ``ValueError`` when the stage holds anything else: then its content is not just copies.
    """
    _, stages = _split(text)
    start, *lines = stages[stage]
    matched = [_COPY_FROM.match(line) for line in lines]
    if not all(matched):
        raise ValueError(f"stage {stage} of the Dockerfile may hold nothing but COPY --from lines")
    return _named_stages(start)[0], [(found["source"], found["destination"]) for found in matched if found]


def _split(text: str) -> tuple[list[str], dict[str, list[str]]]:
    preamble: list[str] = []
    stages: dict[str, list[str]] = {}
    current = preamble
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if start := _STAGE.match(line):
            current = stages.setdefault(start["name"], [])
        current.append(line)
    return preamble, stages


def _named_stages(line: str) -> list[str]:
    start = _STAGE.match(line)
    return [start["parent"]] if start else [found["name"] for found in _OTHER_STAGE.finditer(line)]
