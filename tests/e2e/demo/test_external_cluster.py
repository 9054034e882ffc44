"""The demo on somebody's own cluster, from empty caches: it brings what it calls, and asks first for what it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from e2e.cluster import binaries, golang, packages, paths
from e2e.demo import __main__ as demo
from e2e.demo import record
from e2e.demo.kube import DemoError
from e2e.images import registry

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An empty cache, and the names of the programs that would be built into it."""
    names: list[str] = []

    def build(_: golang.Go, program: binaries.Program) -> None:
        program.path.parent.mkdir(parents=True, exist_ok=True)
        program.path.touch()
        names.append(program.name)

    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(paths, "cache", lambda: tmp_path)
    monkeypatch.setattr(golang, "ensure", lambda: golang.Go(tmp_path / "go"))
    monkeypatch.setattr(binaries, "_build", build)
    return names


def test_only_what_is_wanted_and_lacking_is_built(built: list[str]) -> None:
    binaries.ensure(("kubectl", "helm"))
    assert built == ["kubectl", "helm"]
    binaries.ensure(("kubectl", "helm"))
    assert built == ["kubectl", "helm"]
    binaries.ensure()
    assert sorted(built) == sorted(binaries.PROGRAMS)


def test_kubectl_and_helm_are_there_before_the_cluster_is_asked(
    built: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.touch()
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))

    def first_question(*_: object, **__: object) -> None:
        assert built == ["kubectl", "helm"]
        raise DemoError("far enough")

    monkeypatch.setattr(record, "of_cluster", first_question)
    with pytest.raises(DemoError, match="far enough"):
        demo.up("external", "registry.example.com/lmcb")


@pytest.mark.parametrize(
    ("kubeconfig", "image_registry", "words"),
    [("kubeconfig", "", "needs IMAGE_REGISTRY"), ("absent", "registry.example.com", "needs KUBECONFIG")],
)
def test_what_the_user_has_to_give_is_asked_for_before_anything_is_built(
    built: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    kubeconfig: str,
    image_registry: str,
    words: str,
) -> None:
    (tmp_path / "kubeconfig").touch()
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / kubeconfig))
    with pytest.raises(DemoError, match=words):
        demo.up("external", image_registry)
    assert built == []


def test_skopeo_is_installed_where_docker_built_the_images(monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[str] = []
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr(packages, "ensure", installed.extend)
    monkeypatch.setattr(registry, "_built", list)
    assert registry.publish("registry.example.com/lmcb") == {}
    assert installed == ["skopeo"]
