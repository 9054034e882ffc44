"""Install, test, upgrade and uninstall on the local node: the operator and Helm's hooks run as pods."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from e2e.cluster import paths
from e2e.couchbase_emulator import running_emulator
from e2e.demo.kube import DemoError
from tests.apiserver import eventually
from tests.chart.charts import CHART, NO_JOBS, OPERATOR, Release, Values, resource

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from e2e.couchbase_emulator import RunningEmulator
    from e2e.demo.kube import Kube
    from tests.apiserver import ApiServer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

CRD = "lmcachecouchbases.lmcache-couchbase.io"
ADDED_FIELD = "schedulerName"
WITH_JOBS = {"crdUpgrade": {"enabled": True}}
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def release(node: Kube, namespace: str, tmp_path: Path) -> Iterator[Release]:
    release = Release(node, namespace, tmp_path)
    yield release
    release.uninstall()


@pytest.fixture
def couchbase() -> Iterator[RunningEmulator]:
    with running_emulator(host=paths.NODE_ADDRESS, advertise=paths.NODE_ADDRESS, mgmt_port=0, kv_port=0) as emulator:
        yield emulator


def _values(release: Release, **more: Any) -> Values:
    return {"watchNamespaces": [release.namespace], **NO_JOBS, **more}


def test_installed_it_is_ready_and_helm_test_tells_so(release: Release) -> None:
    release.install(_values(release, **WITH_JOBS), "--wait", "--timeout", "120s")
    deployment = release.kube.get("deployment", OPERATOR, "-n", release.namespace)
    assert deployment is not None
    assert deployment["status"]["readyReplicas"] == 1
    assert "Succeeded" in release.test()
    # what the hooks needed is gone again
    assert _names(release.kube, "jobs,roles,serviceaccounts", "-n", release.namespace) == {OPERATOR, "default"}

    release.kube.kubectl("scale", f"deployment/{OPERATOR}", "--replicas=0", "-n", release.namespace)
    pods = ("pod", "-l", f"app.kubernetes.io/name={OPERATOR}", "-n", release.namespace)
    release.kube.kubectl("wait", "--for=delete", *pods)
    with pytest.raises(DemoError):
        release.test()


def test_helm_test_asks_every_instance_for_a_completion(release: Release) -> None:
    """The instance lies in a namespace that no operator watches; its status points at a server of the test."""
    with _completion_server() as (url, asked):
        place = f"{release.namespace}-instances"
        release.kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}})
        try:
            spec = resource("demo", place)["spec"]
            values = _values(release, instances={"demo": {"namespace": place, "spec": spec}})
            release.install(values, "--timeout", "120s")
            release.kube.kubectl(
                "rollout", "status", f"deployment/{OPERATOR}", "-n", release.namespace, "--timeout=60s"
            )
            with pytest.raises(DemoError):
                release.test()
            status = {
                "observedGeneration": 1,
                "conditions": [_condition("Ready", "True")],
                "workload": {"url": url},
            }
            patch = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
            release.kube.kubectl("patch", "lmcb", "demo", "-n", place, *patch)
            assert "Succeeded" in release.test()
            assert asked[-1]["model"] == "the-model"
            release.uninstall()
        finally:
            release.kube.kubectl("delete", "namespace", place, "--wait=false")


def test_an_upgrade_brings_a_new_field_of_the_crd(release: Release) -> None:
    with _older_definition(release.kube):
        older = _older_chart(release.folder)
        Release(release.kube, release.namespace, release.folder, chart=older).install(
            _values(release), "--wait", "--timeout", "120s"
        )
        assert ADDED_FIELD not in _pod_template_fields(release.kube)
        refused = json.dumps(resource("r", release.namespace, podTemplate={ADDED_FIELD: "mine"}))
        check = ("create", "--dry-run=server", "--validate=strict", "-f", "-")
        with pytest.raises(DemoError, match=ADDED_FIELD):
            release.kube.kubectl(*check, stdin=refused)

        release.install(_values(release, **WITH_JOBS), "--wait", "--timeout", "120s")

        assert ADDED_FIELD in _pod_template_fields(release.kube)
        assert "created" in release.kube.kubectl(*check, stdin=refused)


def test_a_definition_that_the_hook_left_behind_is_no_obstacle(
    apiserver: ApiServer, private: Kube, private_namespace: str, tmp_path: Path
) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "KUBECONFIG": str(apiserver.kubeconfig)}
    command = [sys.executable, "-m", "couchbase_lm_operator", "crds", "apply"]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    other = Release(private, private_namespace, tmp_path, chart=_older_chart(tmp_path))
    try:
        other.install({"watchNamespaces": [private_namespace], **NO_JOBS})
        other.uninstall()
    finally:
        subprocess.run(command, env=environment, check=True, capture_output=True)
    assert ADDED_FIELD in _pod_template_fields(private)


def test_uninstalling_removes_instances_and_users_but_no_data(release: Release, couchbase: RunningEmulator) -> None:
    _put_references(release.kube, release.namespace, couchbase)
    spec = _spec(couchbase)
    release.install(_values(release, instances={"demo": {"spec": spec}}), "--timeout", "120s")
    found = eventually(lambda: _with_condition(release, "demo", "CredentialsReady"), seconds=90)
    bucket, user = found["status"]["couchbase"]["bucket"]["name"], found["status"]["couchbase"]["user"]
    assert _buckets(couchbase) == {bucket}
    assert user in _users(couchbase)

    release.uninstall()

    assert _names(release.kube, "lmcb", "-n", release.namespace) == set()
    assert _buckets(couchbase) == {bucket}
    assert user not in _users(couchbase)
    assert release.kube.get("crd", CRD) is not None
    for kind in ("clusterrole", "clusterrolebinding", "validatingadmissionpolicy"):
        ours = _names(release.kube, kind, "-l", f"app.kubernetes.io/instance={release.name}")
        assert {name for name in ours if release.namespace in name} == set()


def test_uninstalling_waits_for_a_bucket_that_goes_with_its_instance(
    release: Release, couchbase: RunningEmulator
) -> None:
    _put_references(release.kube, release.namespace, couchbase)
    spec = _spec(couchbase, reclaimPolicy="Delete")
    release.install(_values(release, instances={"demo": {"spec": spec}}), "--timeout", "120s")
    eventually(lambda: _with_condition(release, "demo", "CredentialsReady"), seconds=90)
    assert len(_buckets(couchbase)) == 1
    release.uninstall()
    assert _buckets(couchbase) == set()


def test_uninstalling_leaves_resources_of_others(release: Release, couchbase: RunningEmulator) -> None:
    release.install(_values(release), "--wait", "--timeout", "120s")
    _put_references(release.kube, release.namespace, couchbase)
    release.kube.apply({**resource("theirs", release.namespace), "spec": _spec(couchbase)})
    eventually(lambda: _with_condition(release, "theirs", "CredentialsReady"), seconds=90)
    release.uninstall()
    assert release.kube.get("lmcb", "theirs", "-n", release.namespace)
    assert release.kube.get("deployment", "theirs", "-n", release.namespace)
    assert len(_buckets(couchbase)) == 1


def _spec(couchbase: RunningEmulator, **bucket: Any) -> dict[str, Any]:
    # no replicas: what Couchbase holds is the point here, not the pods
    return {
        "model": {"id": "/models/tiny", "config": {"configMapRef": {"name": "model", "key": "config.json"}}},
        "couchbase": {
            "connectionString": couchbase.connection_string,
            "managementEndpoints": couchbase.management_urls,
            "adminSecretRef": {"name": "cb-admin"},
            "bucket": bucket,
        },
        "accelerator": {"vendor": "CPU"},
        "replicas": 0,
    }


def _put_references(kube: Kube, namespace: str, couchbase: RunningEmulator) -> None:
    common = {"apiVersion": "v1", "metadata": {"namespace": namespace}}
    login = {"username": couchbase.admin_username, "password": couchbase.admin_password}
    kube.apply(
        {**common, "kind": "Secret", "metadata": {"name": "cb-admin", "namespace": namespace}, "stringData": login}
    )
    data = {"config.json": json.dumps(CONFIG)}
    kube.apply({**common, "kind": "ConfigMap", "metadata": {"name": "model", "namespace": namespace}, "data": data})


def _with_condition(release: Release, name: str, kind: str) -> dict[str, Any] | None:
    found = release.kube.get("lmcb", name, "-n", release.namespace) or {}
    conditions = {each["type"]: each["status"] for each in (found.get("status") or {}).get("conditions") or []}
    return found if conditions.get(kind) == "True" else None


def _names(kube: Kube, *what: str) -> set[str]:
    listed = kube.get(*what) or {}
    return {each["metadata"]["name"] for each in listed.get("items", [])}


def _buckets(couchbase: RunningEmulator) -> set[str]:
    return couchbase.call(lambda emulator: set(emulator.cluster.buckets))


def _users(couchbase: RunningEmulator) -> set[str]:
    return couchbase.call(lambda emulator: set(emulator.cluster.users))


def _condition(kind: str, status: str) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": "Test",
        "message": "",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


@contextmanager
def _completion_server() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Answer as vLLM does to the two requests of `helm test`, on the node's address of the pods' bridge."""
    asked: list[dict[str, Any]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({"data": [{"id": "the-model"}]})

        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self._answer({"choices": [{"text": " there was"}]})

        def _answer(self, document: dict[str, Any]) -> None:
            content = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer((paths.NODE_ADDRESS, 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{paths.NODE_ADDRESS}:{server.server_address[1]}", asked
        server.shutdown()


def _definition() -> dict[str, Any]:
    (path,) = (CHART / "crds").glob("*.yaml")
    loaded: dict[str, Any] = yaml.safe_load(path.read_text())
    return loaded


def _without_added_field(definition: dict[str, Any]) -> dict[str, Any]:
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["spec"]["properties"]["podTemplate"]["properties"][ADDED_FIELD]
    return definition


def _older_chart(folder: Path) -> Path:
    """Copy the chart as it was before the field was added."""
    older = folder / "older"
    shutil.copytree(CHART, older)
    (path,) = (older / "crds").glob("*.yaml")
    path.write_text(yaml.safe_dump(_without_added_field(_definition())))
    return older


@contextmanager
def _older_definition(kube: Kube) -> Iterator[None]:
    """Put the older CRD in place, where Helm itself would find none to install; the current one comes back."""
    was_there = kube.get("crd", CRD) is not None
    apply = ("apply", "--server-side", "--force-conflicts", "--field-manager=helm", "-f", "-")
    kube.kubectl(*apply, stdin=json.dumps(_definition()))
    kube.kubectl(*apply, stdin=json.dumps(_without_added_field(_definition())))
    # a field that another manager owns too would stay
    fields = f"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/podTemplate/properties/{ADDED_FIELD}"
    if ADDED_FIELD in _pod_template_fields(kube):
        kube.kubectl("patch", "crd", CRD, "--type=json", "-p", json.dumps([{"op": "remove", "path": fields}]))
    try:
        yield
    finally:
        kube.kubectl(*apply, stdin=json.dumps(_definition()))
        assert was_there or kube.get("crd", CRD)


def _pod_template_fields(kube: Kube) -> set[str]:
    definition = kube.get("crd", CRD)
    assert definition is not None
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return set(schema["properties"]["spec"]["properties"]["podTemplate"]["properties"])
