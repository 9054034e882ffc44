"""Form of the operator's log lines: a constant message, and what it is about as key=value or JSON fields."""

from __future__ import annotations

import json
import logging
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from couchbase_lm_operator.settings import Settings

_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "settings"}
# kopf tells every event it handles and every watch it restarts at level info
_KOPF_LEVEL = logging.WARNING


def configure(settings: Settings) -> None:
    """Send the logs of this process to standard error in the form and from the level that settings want."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if settings.log_format == "json" else _PlainFormatter())
    level = settings.log_level.upper()
    logging.basicConfig(level=level, handlers=[handler], force=True)
    if level != "DEBUG":
        for name in ("kopf", "httpx", "httpcore"):
            logging.getLogger(name).setLevel(_KOPF_LEVEL)
        handler.addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    """Drop kopf's word, at level error, on each try that it repeats: the patrol tells once what cannot be read."""
    return not (record.name.startswith("kopf.") and "will retry" in record.getMessage())


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS and name[0] != "_"}


class _PlainFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the standard library's name
        fields = " ".join(f"{name}={value}" for name, value in _fields(record).items() if isinstance(value, str | int))
        return f"{super().formatMessage(record)} {fields}".rstrip()


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
