"""Rendered objects before a real API server, in a namespace that enforces Pod Security restricted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.templates.test_render import CASES, manifests_of

if TYPE_CHECKING:
    from tests.api.conftest import Kubectl

RESTRICTED = "restricted-pods"


@pytest.fixture(scope="session")
def restricted(kubectl: Kubectl) -> str:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RESTRICTED, "labels": labels}}
    kubectl.ok("create", "-f", "-", manifest=namespace)
    priority = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 1000,
    }
    kubectl.ok("create", "-f", "-", manifest=priority)
    return RESTRICTED


@pytest.mark.parametrize("case", CASES)
def test_objects_and_their_pods_are_admitted(kubectl: Kubectl, restricted: str, case: str) -> None:
    manifests = manifests_of(case)
    for manifest in manifests.values():
        manifest["metadata"]["namespace"] = restricted
        said = kubectl.run(
            "apply", "--server-side", "--validate=strict", "--dry-run=server", "-f", "-", manifest=manifest
        )
        assert said.returncode == 0, said.stderr
        assert "Warning" not in said.stderr
    template = manifests["Deployment"]["spec"]["template"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", "namespace": restricted, **template["metadata"]},
        "spec": template["spec"],
    }
    kubectl.ok("create", "--validate=strict", "--dry-run=server", "-f", "-", manifest=pod)


def test_the_namespace_does_refuse_what_is_not_restricted(kubectl: Kubectl, restricted: str) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", "namespace": restricted},
        "spec": {"containers": [{"name": "a", "image": "a"}]},
    }
    assert "violates PodSecurity" in kubectl.refused("create", "--dry-run=server", "-f", "-", manifest=pod)
