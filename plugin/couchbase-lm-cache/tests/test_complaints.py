"""Warnings come once a minute and count what they left out."""

from __future__ import annotations

import logging

from couchbase_lm_cache.complaints import Complaints


def test_a_kind_of_trouble_is_told_once_a_minute() -> None:
    now = [1000.0]
    told: list[str] = []
    logger = logging.getLogger("test_complaints")
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    warnings = Complaints(logger, lambda: now[0])
    for _ in range(5):
        warnings.warn("size", "wrong size")
    warnings.warn("layout", "wrong layout")
    now[0] += 61
    warnings.warn("size", "wrong size")
    assert told == ["wrong size", "wrong layout", "wrong size (4 more since the last warning)"]
