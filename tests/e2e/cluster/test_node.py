"""A pod as the product renders them runs on the local node: native sidecar, DNS, Services, logs, exec, Pod Security."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from e2e.cluster import binaries, images, lifecycle, paths

Kubectl = Callable[..., str]

pytestmark = pytest.mark.cluster


def container(name: str, image: str, command: list[str], **more: Any) -> dict[str, Any]:
    """A container that Pod Security `restricted` admits."""
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/probe", *command],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **more,
    }


@pytest.fixture(scope="module")
def pod(kubectl: Kubectl, namespace: str, probe_image: str) -> str:
    """A Ready pod `web` with a native sidecar, behind a Service `web`."""
    probe = {"exec": {"command": ["/probe", "get", "http://127.0.0.1:8081/"]}, "periodSeconds": 1}
    sidecar = container(
        "sidecar", probe_image, ["serve", "127.0.0.1:8081", "beside"], restartPolicy="Always", startupProbe=probe
    )
    ready = {"httpGet": {"port": 8080, "path": "/ready"}, "periodSeconds": 1}
    main = container("main", probe_image, ["serve", ":8080", "hello"], readinessProbe=ready)
    metadata = {"name": "web", "namespace": namespace, "labels": {"app": "web"}}
    spec = {"initContainers": [sidecar], "containers": [main], "terminationGracePeriodSeconds": 1}
    service = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}
    kubectl(
        "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    )
    kubectl(
        *("apply", "-f", "-"),
        stdin=json.dumps({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service}),
    )
    kubectl("-n", namespace, "wait", "--for=condition=Ready", "--timeout=60s", "pod/web")
    return "web"


@pytest.mark.usefixtures("node")
def test_second_up_changes_nothing_and_is_quick() -> None:
    before = {service.name: service.process() for service in lifecycle.services()}
    started = time.monotonic()
    lifecycle.up()
    assert time.monotonic() - started < 3.0
    assert {service.name: service.process() for service in lifecycle.services()} == before


@pytest.mark.usefixtures("node")
def test_kubeconfig_is_private() -> None:
    assert paths.kubeconfig().stat().st_mode & 0o777 == 0o600


def test_native_sidecar_answers_the_container_it_serves(kubectl: Kubectl, namespace: str, pod: str) -> None:
    said = kubectl("-n", namespace, "exec", pod, "-c", "main", "--", "/probe", "get", "http://127.0.0.1:8081/")
    assert said.strip() == "beside"


def test_pod_resolves_and_reaches_a_service(kubectl: Kubectl, namespace: str, pod: str) -> None:
    address = kubectl("-n", namespace, "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
    resolved = kubectl("-n", namespace, "exec", pod, "-c", "main", "--", "/probe", "resolve", f"web.{namespace}")
    assert resolved.split() == [address]
    url = f"http://web.{namespace}.svc.cluster.local/"
    assert kubectl("-n", namespace, "exec", pod, "-c", "main", "--", "/probe", "get", url).strip() == "hello"


def test_host_reaches_pod_and_service(kubectl: Kubectl, namespace: str, pod: str) -> None:
    address = kubectl("-n", namespace, "get", "pod", pod, "-o", "jsonpath={.status.podIP}")
    service = kubectl("-n", namespace, "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
    for url in (f"http://{address}:8080/", f"http://{service}/"):
        with urllib.request.urlopen(url, timeout=5) as response:
            assert response.read() == b"hello\n"


def test_logs_can_be_read(kubectl: Kubectl, namespace: str, pod: str) -> None:
    assert "answered /ready" in kubectl("-n", namespace, "logs", pod, "-c", "main")


def test_api_server_is_reached_from_a_pod(kubectl: Kubectl, namespace: str, pod: str) -> None:
    resolved = kubectl("-n", namespace, "exec", pod, "-c", "main", "--", "/probe", "resolve", "kubernetes.default.svc")
    assert resolved.split() == [paths.API_SERVICE_ADDRESS]
    # The probe does not know our authority: a TLS failure proves that the port answers TLS.
    url = "https://kubernetes.default.svc/version"
    with pytest.raises(AssertionError, match="certificate signed by unknown authority"):
        kubectl("-n", namespace, "exec", pod, "-c", "main", "--", "/probe", "get", url)


def test_pod_security_refuses_a_privileged_pod(kubectl: Kubectl, namespace: str, probe_image: str) -> None:
    privileged = {**container("main", probe_image, ["serve", ":8080", "x"]), "securityContext": {"privileged": True}}
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "refused", "namespace": namespace},
        "spec": {"containers": [privileged]},
    }
    with pytest.raises(AssertionError, match="violates PodSecurity"):
        kubectl("apply", "-f", "-", stdin=json.dumps(document))


def test_loaded_image_is_known_by_name_and_digest(probe_image: str) -> None:
    assert images.present(probe_image)
    assert not images.present(probe_image, "sha256:" + "0" * 64)
    assert not images.present("localhost/lmcache-couchbase/absent:1")


def test_programs_report_the_versions_they_were_built_from(kubectl: Kubectl) -> None:
    versions = json.loads(kubectl("version", "-o", "json"))
    assert versions["serverVersion"]["gitVersion"] == f"v{binaries.KUBERNETES_VERSION}"
    assert versions["clientVersion"]["gitVersion"] == f"v{binaries.KUBERNETES_VERSION}"
    helm = subprocess.run([binaries.path("helm"), "version", "--short"], capture_output=True, text=True, check=True)
    assert helm.stdout.strip() == f"v{binaries.HELM_VERSION}"
