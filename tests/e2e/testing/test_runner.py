"""The run's exit status: failures, skips and an empty run all fail it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from e2e.testing import runner
from e2e.testing.groups import Group
from e2e.testing.runner import Outcome, print_summary

if TYPE_CHECKING:
    from pathlib import Path

TESTS = """
import pytest

def test_passes():
    pass

@pytest.mark.skipif(True, reason="needs a moon")
def test_is_skipped():
    pass
"""


@pytest.mark.parametrize(
    ("outcome", "status", "last_line"),
    [
        (Outcome("a", passed=2), 0, "2 passed, 0 failed"),
        (Outcome("a", passed=2, failed=1), 1, "2 passed, 1 failed"),
        (Outcome("a", passed=2, skips=["t: why"]), 1, "2 passed, 0 failed, 1 skipped"),
        (Outcome("a"), 1, "0 passed, 0 failed"),
    ],
    ids=["passed", "failed", "skipped", "empty"],
)
def test_only_a_run_in_which_everything_ran_and_passed_is_one(
    outcome: Outcome, status: int, last_line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert print_summary([outcome]) == status
    assert capsys.readouterr().out.splitlines()[-1] == last_line


def test_a_skipped_test_is_named_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "REPORTS", tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_moon.py").write_text(TESTS)
    outcome = runner.run_group(Group("moon", (str(tmp_path / "tests"),)))
    assert (outcome.passed, outcome.failed, len(outcome.skips)) == (1, 0, 1)
    capsys.readouterr()
    assert print_summary([outcome]) == 1
    assert "test_moon.test_is_skipped: needs a moon" in capsys.readouterr().out
