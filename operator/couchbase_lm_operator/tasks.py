"""How asyncio tasks are ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

_T = TypeVar("_T")
_CANCELLATIONS = 10
_CANCEL_AGAIN_SECONDS = 1.0


async def end(tasks: Iterable[asyncio.Task[_T]]) -> set[asyncio.Task[_T]]:
    """Cancel tasks and wait for them, some seconds at most; return those that do not end.

    They are cancelled again and again: a library that swallows one cancellation must not hold the process.
    """
    pending = {task for task in tasks if not task.done()}
    for _ in range(_CANCELLATIONS):
        if not pending:
            break
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_CANCEL_AGAIN_SECONDS)
    return pending
