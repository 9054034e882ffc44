"""The demo takes down what it made itself, on the cluster where it made it, and leaves alone what others need."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from e2e.demo import __main__ as demo
from e2e.demo import record, stack
from e2e.demo.kube import DemoError, Kube
from e2e.images.registry import Published

if TYPE_CHECKING:
    from pathlib import Path

Key = tuple[str, str]


@dataclass(frozen=True)
class FakeCluster(Kube):
    """What kubectl and helm would find and leave in a cluster."""

    uid: str = "uid-a"
    found: dict[Key, dict[str, Any]] = field(default_factory=dict)
    users: list[dict[str, Any]] = field(default_factory=list)
    chart_fails: bool = False

    def get(self, *arguments: str) -> dict[str, Any] | None:
        if arguments[:2] == ("namespace", "kube-system"):
            return {"metadata": {"uid": self.uid}}
        if arguments == (stack.DEFINITION, "-A"):
            return {"items": self.users}
        return self.found.get((arguments[0], arguments[1])) if len(arguments) > 1 else None

    def apply(self, manifest: str | dict[str, Any]) -> None:
        assert isinstance(manifest, dict)
        self.found[manifest["kind"].lower(), manifest["metadata"]["name"]] = manifest

    def kubectl(self, *arguments: str, **_: Any) -> str:
        if arguments[0] == "delete":
            self.found.pop((arguments[1], arguments[2]), None)
        return ""

    def helm(self, *arguments: str, **_: Any) -> str:
        if arguments[0] == "upgrade":
            self.found.setdefault(("crd", stack.DEFINITION), {"metadata": {"uid": "brought"}})
            if self.chart_fails:
                raise DemoError("helm upgrade: timed out")
        return ""

    @property
    def has_definition(self) -> bool:
        return ("crd", stack.DEFINITION) in self.found


IMAGE = Published("registry/operator:1", "1")


def _cluster(tmp_path: Path, uid: str = "uid-a", **values: Any) -> FakeCluster:
    kubeconfig = tmp_path / f"kubeconfig-{uid}"
    kubeconfig.touch()
    return FakeCluster(kubeconfig, uid, **values)


def _foreign_definition() -> dict[Key, dict[str, Any]]:
    return {("crd", stack.DEFINITION): {"metadata": {"uid": "foreign"}}}


def _install(cluster: FakeCluster, folder: Path) -> record.Made:
    made = record.of_cluster(cluster, is_local=False, folder=folder)
    stack.make_namespaces(cluster, stack.PLACE, made)
    stack.install_operator(cluster, stack.PLACE, IMAGE, made)
    return made


def test_a_cluster_is_left_as_it_was(tmp_path: Path) -> None:
    cluster = _cluster(tmp_path)
    made = _install(cluster, tmp_path)
    stack.take_down(cluster, stack.PLACE, made)
    assert cluster.found == {}
    assert (made.namespaces, made.crd_uid) == ([], "")


def test_each_cluster_has_a_record_of_its_own(tmp_path: Path) -> None:
    first, second = _cluster(tmp_path), _cluster(tmp_path, "uid-b", found=_foreign_definition())
    _install(first, tmp_path)
    _install(second, tmp_path)
    found = {made.cluster: made for made in record.all_records(tmp_path)}
    assert {uid: made.crd_uid for uid, made in found.items()} == {"uid-a": "brought", "uid-b": ""}
    assert {uid: made.kubeconfig for uid, made in found.items()} == {
        "uid-a": str(first.kubeconfig),
        "uid-b": str(second.kubeconfig),
    }
    found["uid-b"].forget()
    assert [made.cluster for made in record.all_records(tmp_path)] == ["uid-a"]


def test_a_record_without_a_file_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "FOLDER", tmp_path / "shared")
    monkeypatch.setattr(record, "RECORDS", tmp_path / "shared" / "made")
    cluster, made = _cluster(tmp_path), record.Made()
    stack.make_namespaces(cluster, stack.PLACE, made)
    stack.install_operator(cluster, stack.PLACE, IMAGE, made)
    assert made.crd_uid == "brought"
    stack.take_down(cluster, stack.PLACE, made)
    assert cluster.found == {}
    assert not (tmp_path / "shared").exists()


def test_a_definition_that_was_there_stays(tmp_path: Path) -> None:
    cluster = _cluster(tmp_path, found=_foreign_definition())
    stack.take_down(cluster, stack.PLACE, _install(cluster, tmp_path))
    assert cluster.has_definition


def test_a_definition_that_others_brought_since_stays(tmp_path: Path) -> None:
    cluster = _cluster(tmp_path)
    made = _install(cluster, tmp_path)
    cluster.found.update(_foreign_definition())
    stack.take_down(cluster, stack.PLACE, made)
    assert cluster.has_definition
    assert made.crd_uid == ""


def test_a_definition_in_use_stays_until_nobody_uses_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = _cluster(tmp_path, users=[{"metadata": {"namespace": "production", "name": "theirs"}}])
    stack.take_down(cluster, stack.PLACE, _install(cluster, tmp_path))
    assert cluster.has_definition
    assert "production/theirs would be deleted with it" in capsys.readouterr().out
    (kept,) = record.all_records(tmp_path)
    cluster.users.clear()
    stack.take_down(cluster, stack.PLACE, kept)
    assert not cluster.has_definition


def test_an_installation_that_fails_is_on_record_too(tmp_path: Path) -> None:
    cluster = _cluster(tmp_path, chart_fails=True)
    with pytest.raises(DemoError, match="timed out"):
        _install(cluster, tmp_path)
    (made,) = record.all_records(tmp_path)
    assert (made.crd_uid, made.namespaces) == ("brought", [stack.PLACE.name, stack.PLACE.system, stack.PLACE.couchbase])


class TestTheWayBack:
    """A kubeconfig is an address; the record names a cluster."""

    @pytest.fixture(autouse=True)
    def reachable(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
        found: dict[str, str] = {}
        monkeypatch.setattr(record, "identity", lambda kube: found[kube.kubeconfig.name])
        monkeypatch.delenv("KUBECONFIG", raising=False)
        return found

    def _made(self, tmp_path: Path, **values: Any) -> record.Made:
        (tmp_path / "old").touch()
        return record.Made(cluster="uid-a", kubeconfig=str(tmp_path / "old"), file=tmp_path / "uid-a.json", **values)

    def test_leads_over_the_recorded_kubeconfig(self, tmp_path: Path, reachable: dict[str, str]) -> None:
        reachable["old"] = "uid-a"
        assert demo.reach(self._made(tmp_path)) == Kube(tmp_path / "old")

    def test_leads_over_kubeconfig_when_the_recorded_one_leads_elsewhere(
        self, tmp_path: Path, reachable: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reachable.update(old="uid-b", new="uid-a")
        (tmp_path / "new").touch()
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "new"))
        assert demo.reach(self._made(tmp_path)) == Kube(tmp_path / "new")

    def test_is_refused_to_another_cluster(self, tmp_path: Path, reachable: dict[str, str]) -> None:
        reachable["old"] = "uid-b"
        with pytest.raises(
            DemoError, match=r"cannot reach the cluster uid-a .*old leads to the cluster uid-b.*KUBECONFIG"
        ):
            demo.reach(self._made(tmp_path))

    def test_is_not_needed_to_a_local_node_that_was_made_anew(self, tmp_path: Path, reachable: dict[str, str]) -> None:
        reachable["old"] = "uid-b"
        assert demo.reach(self._made(tmp_path, is_local=True)) is None


def test_an_unreadable_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "uid-a.json").write_text("{")
    with pytest.raises(DemoError, match=r"uid-a\.json is no record of what the demo made"):
        record.all_records(tmp_path)
