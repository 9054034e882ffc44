"""The objects of the demo that a user brings along: namespaces, a Couchbase (emulated here) and its admin Secret."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from couchbase_lm_operator import names
from e2e.images.registry import Published

Manifest = dict[str, Any]

COUCHBASE = "couchbase"
CONTENT = f"{names.GROUP}/image-content"
ADMIN_SECRET = "cb-admin"
ADMIN_USER = "Administrator"
MANAGEMENT_PORT = 8091
KV_PORT = 11210
MEMORY_QUOTA_MIB = 4096


@dataclass(frozen=True)
class Place:
    """The namespaces of one installation: the workload's bears the name itself."""

    name: str

    @property
    def system(self) -> str:
        """Return the operator's namespace."""
        return f"{self.name}-system"

    @property
    def couchbase(self) -> str:
        """Return Couchbase's namespace."""
        return f"{self.name}-couchbase"

    @property
    def all(self) -> tuple[str, str, str]:
        """Return the namespaces in the order in which they are taken down."""
        return self.name, self.system, self.couchbase

    @property
    def couchbase_host(self) -> str:
        """Return the DNS name under which pods reach Couchbase."""
        return f"{COUCHBASE}.{self.couchbase}.svc.cluster.local"


_RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


def namespaces(place: Place) -> list[Manifest]:
    """Return the namespaces, each under the strictest Pod Security level."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted", "app.kubernetes.io/part-of": place.name}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}} for name in place.all
    ]


def admin_secret(namespace: str, password: str) -> Manifest:
    """Return the Secret with the Couchbase administrator that the operator provisions with."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": ADMIN_SECRET, "namespace": namespace},
        "stringData": {"username": ADMIN_USER, "password": password},
    }


def couchbase(place: Place, image: Published) -> list[Manifest]:
    """Return the emulator's Deployment and Service; its data lives as long as its pod."""
    labels = {"app.kubernetes.io/name": COUCHBASE}
    arguments = [
        *("--host", "0.0.0.0", "--advertise", place.couchbase_host),
        *("--mgmt-port", str(MANAGEMENT_PORT), "--kv-port", str(KV_PORT)),
        *("--memory-quota-mib", str(MEMORY_QUOTA_MIB)),
        *("--username", ADMIN_USER),
    ]
    password_key = {"name": ADMIN_SECRET, "key": "password"}
    container = {
        "name": COUCHBASE,
        "image": image.reference,
        "args": arguments,
        "env": [{"name": "COUCHBASE_EMULATOR_PASSWORD", "valueFrom": {"secretKeyRef": password_key}}],
        "ports": [{"name": "management", "containerPort": MANAGEMENT_PORT}, {"name": "kv", "containerPort": KV_PORT}],
        "readinessProbe": {"tcpSocket": {"port": MANAGEMENT_PORT}, "periodSeconds": 2},
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "6Gi"}},
        "securityContext": _RESTRICTED,
    }
    pod = {
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    ports = [
        {"name": "management", "port": MANAGEMENT_PORT, "targetPort": MANAGEMENT_PORT},
        {"name": "kv", "port": KV_PORT, "targetPort": KV_PORT},
    ]
    metadata = {"name": COUCHBASE, "namespace": place.couchbase, "labels": labels}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels, "annotations": {CONTENT: image.inputs}}, "spec": pod},
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"selector": labels, "ports": ports},
    }
    return [deployment, service]
