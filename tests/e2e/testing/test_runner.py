"""The run's exit status: failures, skips and an empty run all fail it."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.testing import runner
from e2e.testing.groups import Group, Need
from e2e.testing.runner import Outcome, print_summary

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


def _group(folder: Path, name: str, test: str, needs: tuple[Need, ...] = (), lane: str = "one") -> Group:
    (folder / name).mkdir()
    (folder / name / f"test_{name}.py").write_text(test)
    return Group(name, (str(folder / name),), needs=needs, lane=lane)


def test_lanes_run_side_by_side_and_what_has_none_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "REPORTS", tmp_path)
    # each of the two ends only when the other has begun, and the one with the node only when both have ended
    meet = """
import pathlib, time
HERE = pathlib.Path({folder!r})
def test_meets():
    (HERE / "{mine}").touch()
    until = time.monotonic() + 60
    while not (HERE / "{other}").exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    time.sleep(0.5)
    (HERE / "{mine} ended").touch()
"""
    last = """
import pathlib
def test_is_last():
    assert len(list(pathlib.Path({folder!r}).glob("* ended"))) == 2
    assert False, "on purpose"
"""
    folder = str(tmp_path)
    groups = [
        _group(tmp_path, "node", last.format(folder=folder), lane=""),
        _group(tmp_path, "one", meet.format(folder=folder, mine="a", other="b")),
        _group(tmp_path, "two", meet.format(folder=folder, mine="b", other="a"), lane="two"),
    ]

    outcomes = runner.run_groups(groups)

    assert [(outcome.name, outcome.passed, outcome.failed) for outcome in outcomes] == [
        ("node", 0, 1),
        ("one", 1, 0),
        ("two", 1, 0),
    ]
    shown = capfd.readouterr().out
    assert "AssertionError: on purpose" in shown
    assert shown.count("1 passed") == 2


def test_a_need_that_cannot_be_met_is_tried_once_and_fails_its_groups_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "REPORTS", tmp_path)
    passes = "def test_passes(): pass"
    impossible = ("the impossible", ["-c", "raise SystemExit(1)"])
    groups = [
        _group(tmp_path, "cannot", passes, needs=(impossible,)),
        _group(tmp_path, "neither", passes, needs=(impossible,), lane="two"),
        _group(tmp_path, "can", passes),
    ]
    outcomes = runner.run_groups(groups)
    assert [(outcome.passed, outcome.failed, outcome.note) for outcome in outcomes] == [
        (0, 1, "could not prepare the impossible"),
        (0, 1, "could not prepare the impossible"),
        (1, 0, ""),
    ]
    assert capfd.readouterr().out.count("preparing the impossible") == 1
