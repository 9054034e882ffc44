"""Brings the CRD into a cluster: Helm installs files of ``crds/`` once and never upgrades them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator.errors import ClusterBusyError
from couchbase_lm_operator.io.kube_api import APPLY_PATCH, KubeApi

if TYPE_CHECKING:
    from pathlib import Path

_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# Helm 4 applies the files of crds/ at every install under this name and gives up when a field that it would change
# has another owner: a CRD that an earlier release left behind must not be in the way of the next one.
HELM_FIELD_MANAGER = "helm"
_ATTEMPTS = 60
_POLL_SECONDS = 1.0


async def apply_crd(definition: dict[str, Any], kubeconfig: Path | None) -> str:
    """Apply the CRD as Helm would, wait until it is served, and return its name.

    Raises:
        SettingsError: the credentials of the API server cannot be read.
        ClusterError: the API server refuses the CRD, does not answer, or does not serve it within a minute.
    """
    name = str(definition["metadata"]["name"])
    path = f"{_PATH}/{name}"
    async with KubeApi(kubeconfig) as api:
        query = {"fieldManager": HELM_FIELD_MANAGER, "force": "true"}
        live = await api.request("PATCH", path, query=query, body=definition, content_type=APPLY_PATCH)
        for _ in range(_ATTEMPTS):
            if _is_established(live):
                return name
            await asyncio.sleep(_POLL_SECONDS)
            live = await api.request("GET", path)
    raise ClusterBusyError(f"GET {path}", 0, "NotEstablished", f"the CRD is not served after {_ATTEMPTS} s")


def _is_established(live: dict[str, Any]) -> bool:
    conditions = (live.get("status") or {}).get("conditions") or []
    return any(each.get("type") == "Established" and each.get("status") == "True" for each in conditions)
