"""A real API server that serves our CRD, and kubectl to talk to it as people do."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from couchbase_lm_operator.api.crd import crd_yaml
from e2e.cluster import binaries
from tests.apiserver import ApiServer, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Kubectl:
    """Runs kubectl as the administrator."""

    server: ApiServer

    def run(self, *arguments: str, manifest: object = None) -> subprocess.CompletedProcess[str]:
        text = manifest if isinstance(manifest, str) else yaml.safe_dump(manifest) if manifest is not None else None
        return subprocess.run(
            [str(binaries.path("kubectl")), "--kubeconfig", str(self.server.kubeconfig), *arguments],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def ok(self, *arguments: str, manifest: object = None) -> str:
        done = self.run(*arguments, manifest=manifest)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, *arguments: str, manifest: object = None) -> str:
        done = self.run(*arguments, manifest=manifest)
        assert done.returncode != 0, done.stdout
        return done.stderr

    def get(self, *arguments: str) -> Any:
        return json.loads(self.ok("get", *arguments, "-o", "json"))


@pytest.fixture(scope="session")
def kubectl() -> Iterator[Kubectl]:
    with ApiServer() as server:
        kubectl = Kubectl(server)
        kubectl.ok("apply", "--server-side", "-f", "-", manifest=crd_yaml())
        eventually(lambda: kubectl.run("get", "lmcb").returncode == 0)
        yield kubectl
