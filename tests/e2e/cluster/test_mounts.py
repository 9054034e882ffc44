"""A folder is removed only after every mount in it, so that what was mounted there stays whole."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from e2e.cluster import mounts


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_files_behind_a_mount_survive(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    inner = tmp_path / "tree" / "a folder"
    inner.mkdir(parents=True)
    subprocess.run(["mount", "--bind", precious, inner], check=True)
    assert mounts.below(tmp_path / "tree") == [inner]
    mounts.remove_tree(tmp_path / "tree")
    assert not (tmp_path / "tree").exists()
    assert (precious / "file").read_text() == "kept"


def test_neighbour_with_the_same_beginning_is_not_below(tmp_path: Path) -> None:
    assert mounts.below(tmp_path / "nothing") == []
