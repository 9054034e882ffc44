"""What the tests of the local node share: a namespace of their own, and kubectl."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster import binaries, images, lifecycle, paths

Kubectl = Callable[..., str]

PROBE_IMAGE = "localhost/lmcache-couchbase/cluster-probe:1"


@pytest.fixture(scope="session")
def node() -> None:
    """The running node; without it the tests fail, they are not skipped."""
    assert lifecycle.is_healthy(), "the local node does not run or is not healthy: `make cluster` first"
    assert paths.kubeconfig().exists(), "this checkout has no kubeconfig yet: `make cluster` first"


@pytest.fixture(scope="session")
def kubectl(node: None) -> Kubectl:  # noqa: ARG001 (needed for its effect)
    """Run kubectl against the node; a failing command raises with what it printed."""

    def run(*arguments: str, stdin: str | None = None) -> str:
        line = [str(binaries.path("kubectl")), "--kubeconfig", str(paths.kubeconfig()), *arguments]
        done = subprocess.run(line, input=stdin, capture_output=True, text=True, timeout=90, check=False)
        if done.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    return run


@pytest.fixture(scope="session")
def probe_image(node: None, tmp_path_factory: pytest.TempPathFactory) -> str:  # noqa: ARG001 (needed for its effect)
    """Build the probe program's image and load it onto the node."""
    archive = tmp_path_factory.mktemp("images") / "probe.tar"
    source = Path(__file__).with_name("probe")
    images.build_program_image(source, archive, name=PROBE_IMAGE, program="/probe")
    return images.load(archive)


@pytest.fixture(scope="module")
def namespace(kubectl: Kubectl) -> Iterator[str]:
    """A namespace of the module's own, under Pod Security `restricted`."""
    name = f"cluster-test-{uuid.uuid4().hex[:8]}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    document: dict[str, Any] = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    kubectl("apply", "-f", "-", stdin=json.dumps(document))
    kubectl("-n", name, "wait", "--for=create", "--timeout=30s", "serviceaccount/default")
    yield name
    kubectl("delete", "namespace", name, "--wait=false")
