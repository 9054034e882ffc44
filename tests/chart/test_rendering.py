"""The rendered objects, judged by a real API server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.chart.charts import CI_VALUES, OPERATOR, Release, of_kind

if TYPE_CHECKING:
    from pathlib import Path

    from e2e.demo.kube import Kube
    from tests.chart.charts import Manifest


@pytest.fixture
def release(private: Kube, private_namespace: str, tmp_path: Path) -> Release:
    return Release(private, private_namespace, tmp_path)


def _ready_to_judge(manifest: Manifest, namespace: str) -> Manifest:
    # Everything goes into the one namespace that exists, which enforces Pod Security "restricted".
    if "namespace" in manifest["metadata"]:
        manifest["metadata"]["namespace"] = namespace
    return manifest


@pytest.mark.parametrize("values_file", CI_VALUES, ids=lambda path: path.stem)
def test_the_api_server_takes_every_object_without_a_warning(release: Release, values_file: Path) -> None:
    values = yaml.safe_load(values_file.read_text())
    rendered = release.template(values, "--include-crds")
    # the CRD first: a dry run of a resource needs it
    for definition in of_kind(rendered, "CustomResourceDefinition"):
        release.kube.apply(definition)
    release.kube.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    names = set()
    for manifest in rendered:
        text = json.dumps(_ready_to_judge(manifest, release.namespace))
        release.kube.kubectl(
            *("create", "--dry-run=server", "--validate=strict", "--warnings-as-errors", "-f", "-")
            if manifest["kind"] != "CustomResourceDefinition"
            else ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-"),
            stdin=text,
        )
        names.add(manifest["kind"])
    assert names >= {"Deployment", "Service", "ServiceAccount", "ValidatingAdmissionPolicy", "Job", "LMCacheCouchbase"}


def test_one_operator_that_is_replaced_and_never_doubled(release: Release) -> None:
    (deployment,) = of_kind(release.template({}), "Deployment")
    assert deployment["metadata"]["name"] == OPERATOR
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert {"startupProbe", "readinessProbe", "livenessProbe"} <= set(container)
    assert container["resources"]["limits"]["memory"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_settings_reach_the_operator(release: Release) -> None:
    values = {
        "watchNamespaces": ["a", "b"],
        "image": {"repository": "registry.example.com/op", "digest": "sha256:" + "a" * 64},
        "operator": {"maxL1Size": "2Gi", "allowHostPath": True, "workers": 7},
        "engine": {"image": "registry.example.com/vllm:1", "imageCPU": "registry.example.com/cpu:1"},
    }
    (deployment,) = of_kind(release.template(values), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    environment = {entry["name"]: entry["value"] for entry in container["env"]}
    assert container["image"] == "registry.example.com/op@sha256:" + "a" * 64
    assert environment["LMCB_OPERATOR_IMAGE"] == container["image"]
    assert environment["LMCB_NAMESPACES"] == "a,b"
    assert environment["LMCB_MAX_L1_BYTES"] == str(2 << 30)
    assert environment["LMCB_ALLOW_HOST_PATH"] == "true"
    assert environment["LMCB_WORKERS"] == "7"
    assert environment["LMCB_ENGINE_IMAGE"] == "registry.example.com/vllm:1"
    assert environment["LMCB_ENGINE_IMAGE_CPU"] == "registry.example.com/cpu:1"


def test_namespaced_mode_renders_no_cluster_wide_right(release: Release) -> None:
    rendered = release.template({"watchNamespaces": ["a", "b"], "crdUpgrade": {"enabled": False}})
    assert of_kind(rendered, "ClusterRole") == of_kind(rendered, "ClusterRoleBinding") == []
    assert [role["metadata"]["namespace"] for role in of_kind(rendered, "Role")] == ["a", "b"]


def test_two_releases_of_one_name_share_no_cluster_scoped_name(private: Kube, tmp_path: Path) -> None:
    seen: set[tuple[str, str]] = set()
    for namespace in ("a", "b"):
        for manifest in Release(private, namespace, tmp_path).template({}):
            if "namespace" not in manifest["metadata"] and manifest["kind"] != "CustomResourceDefinition":
                key = (manifest["kind"], manifest["metadata"]["name"])
                assert key not in seen
                seen.add(key)
    assert seen


def test_notes_tell_how_to_wait_read_the_password_and_ask(release: Release) -> None:
    spec = {
        "model": {"id": "/models/tiny", "config": {"configMapRef": {"name": "c", "key": "config.json"}}},
        "couchbase": {"connectionString": "couchbase://cb", "adminSecretRef": {"name": "s"}},
        "service": {"port": 9000},
    }
    values = {"instances": {"demo": {"spec": spec}}, "watchNamespaces": [release.namespace]}
    printed = release.install(values, "--dry-run=client")
    assert f"kubectl -n {release.namespace} wait --for=condition=Ready lmcb/demo" in printed
    assert "jsonpath='{.status.couchbase.secretName}'" in printed
    assert "port-forward service/demo 8000:9000" in printed
    assert '"model": "tiny"' in printed
