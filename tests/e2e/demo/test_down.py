"""`make demo-down` over all records: a cluster that is away holds up no other; who started a node stops it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from e2e.cluster import binaries, lifecycle
from e2e.demo import __main__ as demo
from e2e.demo import record, stack
from e2e.demo.kube import DemoError, Kube

if TYPE_CHECKING:
    from pathlib import Path


class Machine:
    """The calls that reach the local node and the clusters."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.is_healthy = True
        self.away: set[str] = set()

    def reach(self, made: record.Made) -> Kube | None:
        if made.cluster in self.away:
            if made.is_local:
                return None
            raise DemoError(f"cannot reach the cluster {made.cluster}")
        return Kube(made.file or stack.CHART)

    def take_down(self, kube: Kube, place: object, made: record.Made) -> None:
        assert place == stack.PLACE
        self.calls.append(f"take down {kube.kubeconfig.stem}")
        made.namespaces.clear()

    def down(self) -> None:
        self.calls.append("stop node")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    everything = record.all_records
    monkeypatch.setattr(record, "FOLDER", tmp_path)
    monkeypatch.setattr(record, "_NODE_MARK", tmp_path / "starts-node")
    monkeypatch.setattr(record, "all_records", lambda: everything(tmp_path))
    monkeypatch.setattr(demo, "reach", machine.reach)
    monkeypatch.setattr(stack, "take_down", machine.take_down)
    monkeypatch.setattr(stack, "leftovers", lambda *_: [])
    monkeypatch.setattr(binaries, "ensure", lambda _: None)
    monkeypatch.setattr(lifecycle, "down", machine.down)
    monkeypatch.setattr(lifecycle, "is_healthy", lambda: machine.is_healthy)
    return machine


def _save(folder: Path, cluster: str, *, is_local: bool = False, started_node: bool = False) -> None:
    file = folder / f"{cluster}.json"
    record.Made(
        cluster=cluster, is_local=is_local, started_node=started_node, namespaces=["lmcb-demo"], file=file
    ).save()


def test_nothing_on_record_means_nothing_is_touched(machine: Machine) -> None:
    demo.down()
    assert machine.calls == []


def test_a_cluster_that_is_away_keeps_its_record_and_holds_up_no_other(machine: Machine, tmp_path: Path) -> None:
    _save(tmp_path, "a")
    _save(tmp_path, "b")
    machine.away = {"a"}
    with pytest.raises(DemoError, match="cannot reach the cluster a"):
        demo.down()
    assert machine.calls == ["take down b"]
    assert [made.cluster for made in record.all_records()] == ["a"]


@pytest.mark.parametrize("started_node", [True, False])
def test_the_node_is_stopped_only_if_the_demo_started_it(
    machine: Machine, tmp_path: Path, *, started_node: bool
) -> None:
    _save(tmp_path, "a", is_local=True, started_node=started_node)
    demo.down()
    assert machine.calls == ["take down a", *(["stop node"] if started_node else [])]
    assert record.all_records() == []


@pytest.mark.parametrize("is_healthy", [True, False])
def test_a_node_that_was_made_anew_by_others_goes_on(machine: Machine, tmp_path: Path, *, is_healthy: bool) -> None:
    _save(tmp_path, "a", is_local=True, started_node=True)
    machine.away, machine.is_healthy = {"a"}, is_healthy
    demo.down()
    assert machine.calls == ([] if is_healthy else ["stop node"])
    assert record.all_records() == []


def test_a_start_of_the_node_that_was_killed_is_cleared_away(machine: Machine) -> None:
    record.mark_node_start()
    demo.down()
    assert machine.calls == ["stop node"]
    assert not record.is_node_start_marked()
