"""The table of settings: every field is in it, and a stale or unmarked README is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from couchbase_lm_operator.core.adapter_settings import ADAPTER_SETTINGS
from e2e.testing import adapter_settings, generated


@pytest.fixture
def readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "README.md"
    path.write_text(adapter_settings.readme_with_settings())
    monkeypatch.setattr(adapter_settings, "README", path)
    # the other generated files lie in the checkout, and paths are shown below its root
    monkeypatch.setattr(generated, "generated_files", lambda: [(path, adapter_settings.readme_with_settings())])
    monkeypatch.setattr(generated, "ROOT", tmp_path)
    return path


def test_every_setting_has_a_row_with_its_variable_and_meaning(readme: Path) -> None:
    # between the two marks alone: the README has other tables
    table = readme.read_text().partition("<!-- settings: begin")[2].partition("<!-- settings: end")[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| `")]
    assert {row[0].strip("| `") for row in rows} == ADAPTER_SETTINGS
    assert all(len(row) == 4 and row[2].startswith("`LMCACHE_COUCHBASE_") and row[3] for row in rows)


def test_a_changed_row_is_stale_until_it_is_written_again(readme: Path) -> None:
    wanted = readme.read_text()
    readme.write_text(wanted.replace("int, `8`", "int, `9`"))
    assert generated.stale_files() == ["README.md"]
    generated.write_generated()
    assert generated.stale_files() == []
    assert readme.read_text() == wanted


def test_a_readme_without_a_mark_is_refused(readme: Path) -> None:
    readme.write_text("# no table here\n")
    with pytest.raises(ValueError, match=r"README.md lacks the line <!-- settings: begin"):
        adapter_settings.readme_with_settings()
