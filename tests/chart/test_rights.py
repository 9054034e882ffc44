"""The operator's rights: enough for all it does, and nothing beyond. The operator runs for real with them."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from e2e.couchbase_emulator import running_emulator
from e2e.demo.kube import DemoError
from tests.apiserver import ApiServer, eventually
from tests.chart.charts import NO_JOBS, OPERATOR, Release, resource

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from e2e.couchbase_emulator import RunningEmulator
    from e2e.demo.kube import Kube

OURS = "lmcachecouchbases.lmcache-couchbase.io"
Call = tuple[str, str]

NEEDED: list[Call] = [
    *((verb, OURS) for verb in ("get", "list", "watch", "patch")),
    ("patch", f"{OURS}/status"),
    *((verb, "deployments.apps") for verb in ("get", "list", "watch", "create", "patch", "delete")),
    *((verb, "services") for verb in ("get", "list", "watch", "create", "patch", "delete")),
    *((verb, "controllerrevisions.apps") for verb in ("get", "list", "watch", "create", "patch", "delete")),
    *((verb, "secrets") for verb in ("get", "create", "patch")),
    ("get", "configmaps"),
    ("list", "pods"),
    ("create", "events"),
]
NEVER: list[Call] = [
    *((verb, "secrets") for verb in ("list", "watch", "update", "delete", "deletecollection")),
    *((verb, "configmaps") for verb in ("list", "watch", "create", "patch", "delete")),
    *((verb, "pods") for verb in ("get", "create", "patch", "delete")),
    ("create", "pods/exec"),
    *((verb, OURS) for verb in ("create", "update", "delete")),
    *((verb, "serviceaccounts") for verb in ("get", "create")),
    ("create", "serviceaccounts/token"),
    *((verb, "roles.rbac.authorization.k8s.io") for verb in ("get", "create", "escalate", "bind")),
    *((verb, "customresourcedefinitions.apiextensions.k8s.io") for verb in ("get", "list", "patch")),
    *((verb, "namespaces") for verb in ("list", "watch", "create", "delete")),
    ("list", "nodes"),
]


def _allowed(kube: Kube, account: str, calls: list[Call], namespace: str) -> list[Call]:
    """Ask the API server as the account itself; returns those of the calls that it may make."""
    reviews = [
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": _attributes(verb, kind, namespace)},
        }
        for verb, kind in calls
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": reviews})
    answer = ("-o", 'jsonpath={.status.allowed}{"\\n"}')
    answers = kube.kubectl("create", "-f", "-", *answer, "--as", account, stdin=text).splitlines()
    return [call for call, allowed in zip(calls, answers, strict=True) if allowed == "true"]


def _attributes(verb: str, kind: str, namespace: str) -> dict[str, str]:
    kind, _, subresource = kind.partition("/")
    plural, _, group = kind.partition(".")
    return {"verb": verb, "group": group, "resource": plural, "subresource": subresource, "namespace": namespace}


@pytest.fixture(scope="module")
def both_modes(private: Kube, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Two releases, one for all namespaces and one for `rights-a`; returns their accounts."""
    accounts = {}
    for name in ("rights-wide", "rights-system", "rights-a", "rights-b"):
        private.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for mode, namespace, watched in (("wide", "rights-wide", []), ("namespaced", "rights-system", ["rights-a"])):
        Release(private, namespace, tmp_path_factory.mktemp(mode)).install({"watchNamespaces": watched, **NO_JOBS})
        accounts[mode] = f"system:serviceaccount:{namespace}:{OPERATOR}"
    return accounts


@pytest.mark.parametrize("mode", ["wide", "namespaced"])
def test_it_may_do_what_it_does_where_it_watches(private: Kube, both_modes: dict[str, str], mode: str) -> None:
    assert _allowed(private, both_modes[mode], NEEDED, "rights-a") == NEEDED
    assert "rights-a" in private.kubectl("get", "namespace", "rights-a", "--as", both_modes[mode])


@pytest.mark.parametrize("mode", ["wide", "namespaced"])
def test_it_may_do_nothing_else(private: Kube, both_modes: dict[str, str], mode: str) -> None:
    assert _allowed(private, both_modes[mode], NEVER, "rights-a") == []


def test_namespaced_it_may_do_nothing_elsewhere(private: Kube, both_modes: dict[str, str]) -> None:
    account = both_modes["namespaced"]
    everywhere = ""
    for namespace in ("rights-b", "rights-system", everywhere):
        assert _allowed(private, account, NEEDED, namespace) == []
    with pytest.raises(DemoError, match="forbidden"):
        private.kubectl("get", "namespace", "rights-b", "--as", account)


@pytest.mark.parametrize("mode", ["wide", "namespaced"])
def test_the_operator_works_with_these_rights_alone(
    apiserver: ApiServer, private: Kube, private_namespace: str, tmp_path: Path, mode: str
) -> None:
    namespace = private_namespace
    watched = [namespace] if mode == "namespaced" else []
    release = Release(private, namespace, tmp_path)
    release.install({"watchNamespaces": watched, **NO_JOBS, "admissionPolicy": {"enabled": True}})
    token = private.kubectl("create", "token", OPERATOR, "-n", namespace).strip()
    kubeconfig = apiserver.kubeconfig_for(token, tmp_path / "kubeconfig")
    with running_emulator() as couchbase, _operator(kubeconfig, watched, tmp_path / "log"):
        _create(private, namespace, couchbase)
        eventually(lambda: _condition(private, namespace, "CredentialsReady") == "True", seconds=60)
        eventually(lambda: private.get("deployment", "demo", "-n", namespace), seconds=30)
        assert private.get("service", "demo", "-n", namespace)
        about_it = ("--field-selector", "involvedObject.name=demo")
        assert private.get("events", "-n", namespace, *about_it)
        private.kubectl("delete", "lmcb", "demo", "-n", namespace, "--timeout=60s")
    refused = [line for line in (tmp_path / "log").read_text().splitlines() if "forbidden" in line.lower()]
    assert refused == []
    release.uninstall()


@contextmanager
def _operator(kubeconfig: Path, watched: list[str], log: Path) -> Iterator[None]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "LMCB_KUBECONFIG": str(kubeconfig),
        "LMCB_NAMESPACES": ",".join(watched),
        "LMCB_HTTP_HOST": "127.0.0.1",
        "LMCB_HTTP_PORT": "0",
        "LMCB_LOG_FORMAT": "json",
    }
    command = [sys.executable, "-m", "couchbase_lm_operator", "run"]
    with log.open("w") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def _create(kube: Kube, namespace: str, couchbase: RunningEmulator) -> None:
    password = {"username": couchbase.admin_username, "password": couchbase.admin_password}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "cb-admin", "namespace": namespace}}
    kube.apply({**secret, "stringData": password})
    config = {
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "hidden_size": 1024,
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 4096,
        "torch_dtype": "bfloat16",
    }
    kube.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "model", "namespace": namespace},
            "data": {"config.json": json.dumps(config)},
        }
    )
    wanted = resource(
        "demo",
        namespace,
        model={"id": "/models/tiny", "config": {"configMapRef": {"name": "model", "key": "config.json"}}},
        couchbase={
            "connectionString": couchbase.connection_string,
            "managementEndpoints": couchbase.management_urls,
            "adminSecretRef": {"name": "cb-admin"},
            "bucket": {"name": f"rights-{secrets.token_hex(4)}", "reclaimPolicy": "Delete"},
        },
    )
    kube.apply(wanted)


def _condition(kube: Kube, namespace: str, kind: str) -> str:
    found = kube.get("lmcb", "demo", "-n", namespace) or {}
    conditions = (found.get("status") or {}).get("conditions") or []
    return next((str(each["status"]) for each in conditions if each["type"] == kind), "")
