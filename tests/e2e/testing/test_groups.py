"""Every test is in exactly one group of `make test`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from e2e.bootstrap import ROOT
from e2e.testing.groups import GROUPS

if TYPE_CHECKING:
    from pathlib import Path

GROUPED = [ROOT / path for group in GROUPS for path in group.paths]
HOMES = ("tests", "e2e", "plugin", "benchmarks", "charts", "operator")


def _test_files() -> list[Path]:
    return [path for home in HOMES for path in (ROOT / home).rglob("test_*.py")]


def test_every_test_file_is_in_exactly_one_group() -> None:
    files = _test_files()
    groups_of = {str(file.relative_to(ROOT)): sum(file.is_relative_to(path) for path in GROUPED) for file in files}
    assert files
    assert {file: count for file, count in groups_of.items() if count != 1} == {}


def test_every_grouped_folder_exists_and_holds_tests() -> None:
    holds = Counter(path for path in GROUPED for file in _test_files() if file.is_relative_to(path))
    assert [str(path.relative_to(ROOT)) for path in GROUPED if not holds[path]] == []
