"""Whose node it is decides what `down` may remove."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from e2e.bootstrap import ROOT
from e2e.cluster import lifecycle, paths, removal


@pytest.fixture
def removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The machine of a test: state in a folder of its own, and a list of what was removed in place of removing it."""
    calls: list[str] = []
    monkeypatch.setattr(paths, "STATE", tmp_path / "state")
    monkeypatch.setattr(paths, "NODE_RECORD", tmp_path / "state" / "node.json")
    monkeypatch.setattr(paths, "LOCK_FILE", tmp_path / "lock")
    monkeypatch.setattr(paths, "kubeconfig", lambda: tmp_path / "kubeconfig")
    monkeypatch.setattr(removal, "remove_node", lambda _records: calls.append("node"))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    (tmp_path / "state").mkdir()
    (tmp_path / "kubeconfig").touch()
    return calls


def record_node(*, owner: Path, boot: str | None = None) -> None:
    boot = boot or Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    paths.NODE_RECORD.write_text(json.dumps({"owner": str(owner), "boot": boot, "stateFormat": 1}))


def test_own_node_is_removed(removed: list[str]) -> None:
    record_node(owner=ROOT)
    lifecycle.down()
    assert removed == ["node"]
    assert not paths.kubeconfig().exists()


def test_node_of_another_checkout_stays(removed: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record_node(owner=tmp_path)
    lifecycle.down()
    assert removed == []
    assert not paths.kubeconfig().exists()
    assert str(tmp_path) in capsys.readouterr().out


def test_node_of_a_checkout_that_is_gone_is_removed(removed: list[str], tmp_path: Path) -> None:
    record_node(owner=tmp_path / "gone")
    lifecycle.down()
    assert removed == ["node"]


def test_leftovers_of_an_earlier_boot_are_removed(removed: list[str], tmp_path: Path) -> None:
    record_node(owner=tmp_path, boot="another")
    lifecycle.down()
    assert removed == ["node"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"owner": "/x"}'])
def test_damaged_record_counts_as_leftovers(removed: list[str], text: str) -> None:
    paths.NODE_RECORD.write_text(text)
    assert lifecycle.read_record() is None
    lifecycle.down()
    assert removed == ["node"]


def test_without_a_node_there_is_nothing_to_do(
    removed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "STATE", tmp_path / "absent")
    monkeypatch.setattr(paths, "DATA", tmp_path / "absent")
    monkeypatch.setattr(paths, "BRIDGE", "lmcb-absent")
    lifecycle.down()
    assert removed == []
