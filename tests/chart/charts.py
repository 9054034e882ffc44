"""The chart under test, and what tests say to it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from e2e.bootstrap import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from e2e.demo.kube import Kube

CHART = ROOT / "charts" / "lmcache-couchbase"
CI_VALUES = sorted((CHART / "ci").glob("*-values.yaml"))
NO_JOBS = {"crdUpgrade": {"enabled": False}}
OPERATOR = "lmcache-couchbase-operator"

Manifest = dict[str, Any]
Values = dict[str, Any]


@dataclass
class Release:
    """One release of the chart, by default from the repository's own chart."""

    kube: Kube
    namespace: str
    folder: Path
    name: str = "lmcache-couchbase"
    chart: Path = field(default=CHART)

    def install(self, values: Values, *flags: str) -> str:
        """Install or upgrade, as `helm upgrade --install` does; returns what helm printed."""
        return self._helm("upgrade", "--install", self.name, str(self.chart), *self._values(values), *flags)

    def template(self, values: Values, *flags: str) -> list[Manifest]:
        """Render without a cluster."""
        return objects(self._helm("template", self.name, str(self.chart), *self._values(values), *flags))

    def test(self) -> str:
        """Run `helm test`."""
        return self._helm("test", self.name, "--timeout", "120s", "--logs")

    def uninstall(self) -> str:
        """Uninstall and wait until all of it is gone."""
        return self._helm("uninstall", self.name, "--wait", "--ignore-not-found", "--timeout", "240s")

    def _helm(self, *arguments: str) -> str:
        return self.kube.helm(*arguments, "--namespace", self.namespace)

    def _values(self, values: Values) -> tuple[str, str]:
        path = self.folder / "values.json"
        path.write_text(json.dumps(values))
        return "--values", str(path)


def objects(text: str) -> list[Manifest]:
    """Return the manifests of a YAML stream."""
    return [document for document in yaml.safe_load_all(text) if document]


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    """Return the manifests of one kind."""
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def resource(name: str, namespace: str, **spec: Any) -> Manifest:
    """Return a small LMCacheCouchbase; ``spec`` replaces or adds whole parts."""
    couchbase = {"connectionString": "couchbase://cb.example.com", "adminSecretRef": {"name": "cb-admin"}}
    return {
        "apiVersion": "lmcache-couchbase.io/v1alpha1",
        "kind": "LMCacheCouchbase",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"model": {"id": "Qwen/Qwen3-8B"}, "couchbase": couchbase, **spec},
    }
