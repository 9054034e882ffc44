"""Reasons are API: CamelCase, explained, and every one of them is really given somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from couchbase_lm_operator.api import reasons
from couchbase_lm_operator.api.reasons import Reason

_PACKAGE = Path(reasons.__file__).parents[1]


@pytest.mark.parametrize("reason", list(Reason), ids=str)
def test_a_reason_is_one_camel_case_word_with_a_meaning(reason: Reason) -> None:
    assert re.fullmatch(r"([A-Z][a-z0-9]*)([A-Z][A-Za-z0-9]*)?", reason)
    assert reason.name.replace("_", "").lower() == reason.lower()
    assert reason.meaning.endswith(".")


def test_every_reason_is_given_somewhere() -> None:
    sources = "".join(path.read_text() for path in _PACKAGE.rglob("*.py") if path.name != "reasons.py")
    assert [reason.name for reason in Reason if f"Reason.{reason.name}" not in sources] == []
