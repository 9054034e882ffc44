"""What an operator in a test logs: an ERROR record or a traceback is a bug, unless the test says that it expects it."""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# the emulator runs in this process too, and what it says is no matter of the operator
_OTHERS = ("e2e", "tests")


class OperatorLog(logging.Handler):
    """Collects what no operator should log while one is attached."""

    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self._expected: list[re.Pattern[str]] = []
        self._faults: list[str] = []
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def expect(self, pattern: str) -> None:
        """Let records pass whose text, traceback included, holds the regular expression ``pattern``."""
        self._expected.append(re.compile(pattern))

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record if it is an error or carries a traceback."""
        is_fault = record.levelno >= logging.ERROR or bool(record.exc_info and record.exc_info[0])
        if not is_fault or record.name.partition(".")[0] in _OTHERS:
            return
        text = self.format(record)
        if not any(pattern.search(text) for pattern in self._expected):
            self._faults.append(text)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Listen while the block runs, then fail if there was anything; a failure of the block keeps its place."""
        root = logging.getLogger()
        root.addHandler(self)
        try:
            yield
        except BaseException as error:
            if self._faults:
                error.add_note(self._told())
            raise
        finally:
            root.removeHandler(self)
        assert not self._faults, self._told()

    def _told(self) -> str:
        return (
            "the operator logged what no user should have to read (ERROR or a traceback). Repair it, or, if the test "
            "provokes it on purpose, call world.log.expect(pattern) before:\n\n" + "\n\n".join(self._faults)
        )
