"""What the operator reads and writes in Kubernetes, one verb per method.

It decides nothing: names, contents and when to write come from the core. Every write carries our field
manager; deletes carry the UID that was seen, so that a namesake made meanwhile is never hit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator import names
from couchbase_lm_operator.errors import ClusterConflictError, ClusterGoneError, ClusterRefusedError
from couchbase_lm_operator.io.kube_api import (
    APPLY_PATCH,
    JSON_PATCH,
    KINDS,
    MERGE_PATCH,
    METADATA_ONLY,
    KubeApi,
)

if TYPE_CHECKING:
    from couchbase_lm_operator.core.observed import Manifest

_PAGE_SIZE = 500
# The API server's answer to a JSON patch whose "test" does not hold.
_FAILED_TEST = 422


@dataclass(frozen=True)
class Cluster:
    """The verbs over one API server."""

    api: KubeApi

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """Return an object, or None when it does not exist.

        Raises:
            ClusterError: the API server refused or did not answer.
        """
        try:
            return await self.api.request("GET", KINDS[kind].path(namespace, name))
        except ClusterGoneError:
            return None

    async def resource_version(self, kind: str, namespace: str, name: str) -> str:
        """Return an object's resource version without its content, or "" when it does not exist."""
        try:
            found = await self.api.request("GET", KINDS[kind].path(namespace, name), accept=METADATA_ONLY)
        except ClusterGoneError:
            return ""
        return str(found["metadata"]["resourceVersion"])

    async def objects(self, kind: str, namespace: str = "", *, label_selector: str = "") -> tuple[list[Manifest], str]:
        """Return all objects of a kind (of a namespace, or of all) and the list's resource version.

        Items of a list carry no ``kind``: it is put back, as callers tell objects apart by it.
        """
        query = {"limit": str(_PAGE_SIZE)}
        if label_selector:
            query["labelSelector"] = label_selector
        items: list[Manifest] = []
        while True:
            page = await self.api.request("GET", KINDS[kind].path(namespace), query=query)
            items += [{"apiVersion": KINDS[kind].api_version, "kind": kind, **item} for item in page.get("items") or []]
            token = page["metadata"].get("continue")
            if not token:
                return items, str(page["metadata"]["resourceVersion"])
            query["continue"] = token

    async def apply(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Server-side apply under our field manager, taking the fields we render from whoever set them.

        With ``dry_run`` the API server only judges the object: defaulting, validation and admission run,
        nothing is stored.
        """
        metadata = manifest["metadata"]
        query = {"fieldManager": names.FIELD_MANAGER, "force": "true", "fieldValidation": "Strict"}
        if dry_run:
            query["dryRun"] = "All"
        path = KINDS[manifest["kind"]].path(metadata["namespace"], metadata["name"])
        return await self.api.request("PATCH", path, query=query, body=manifest, content_type=APPLY_PATCH)

    async def create(self, manifest: Manifest) -> Manifest | None:
        """Create an object; None when one of that name exists already."""
        path = KINDS[manifest["kind"]].path(manifest["metadata"]["namespace"])
        try:
            return await self.api.request("POST", path, query={"fieldManager": names.FIELD_MANAGER}, body=manifest)
        except ClusterConflictError:
            return None

    async def delete(self, live: Manifest) -> None:
        """Delete exactly this object: its UID is a precondition; already gone is success."""
        metadata = live["metadata"]
        options = {"preconditions": {"uid": metadata["uid"]}, "propagationPolicy": "Background"}
        path = KINDS[live["kind"]].path(metadata["namespace"], metadata["name"])
        try:
            await self.api.request("DELETE", path, body=options)
        except (ClusterGoneError, ClusterConflictError):
            return

    async def patch_status(self, resource: Manifest, patch: dict[str, Any]) -> Manifest:
        """Merge ``patch`` into the status of one of our resources, if it did not change since it was read.

        Raises:
            ClusterConflictError: it did change.
            ClusterGoneError: it was deleted.
        """
        metadata = resource["metadata"]
        body = {"metadata": {"resourceVersion": metadata["resourceVersion"], "uid": metadata["uid"]}, "status": patch}
        path = KINDS[names.KIND].path(metadata["namespace"], metadata["name"], "status")
        query = {"fieldManager": names.FIELD_MANAGER}
        return await self.api.request("PATCH", path, query=query, body=body, content_type=MERGE_PATCH)

    async def set_finalizers(self, resource: Manifest, finalizers: list[str]) -> Manifest:
        """Replace the finalizers of one of our resources, if nobody wrote to it since it was read.

        Raises:
            ClusterConflictError: somebody did (the API server answers 422 to a failed ``test``).
            ClusterGoneError: it was deleted.
        """
        metadata = resource["metadata"]
        body = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
            {"op": "add", "path": "/metadata/finalizers", "value": finalizers},
        ]
        path = KINDS[names.KIND].path(metadata["namespace"], metadata["name"])
        query = {"fieldManager": names.FIELD_MANAGER}
        try:
            return await self.api.request("PATCH", path, query=query, body=body, content_type=JSON_PATCH)
        except ClusterRefusedError as error:
            if error.status != _FAILED_TEST:
                raise
            raise ClusterConflictError(error.what, error.status, error.reason, error.message) from error
