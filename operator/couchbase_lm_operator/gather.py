"""All reads of one pass from Kubernetes and the model hub, into one ``Observed``.

Couchbase is read by the provisioning arm, since the workload must not wait for a cluster that is slow or
down. A read that fails because something is missing or forbidden is data; an API server that does not
answer ends the pass, so that nothing is ever decided, or pruned, on half a picture.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from couchbase_lm_operator import names
from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec
from couchbase_lm_operator.core.children import kept_config, lost_record
from couchbase_lm_operator.core.children.pods import pod_state
from couchbase_lm_operator.core.children.readiness import has_one_template, workload_state
from couchbase_lm_operator.core.couchbase import bucket_record, connection_string
from couchbase_lm_operator.core.couchbase.claims import claim
from couchbase_lm_operator.core.model.model_reading import parse_model_config
from couchbase_lm_operator.core.observed import Missing, Observed, PodReadings, PodState, SecretValue, Unread
from couchbase_lm_operator.core.sizing import sizing_verdict
from couchbase_lm_operator.io import references
from couchbase_lm_operator.io.hf_hub import DEFAULT_ENDPOINT, HubModel
from couchbase_lm_operator.io.namespaces import resources_of
from couchbase_lm_operator.io.watches import OUR_CHILDREN

if TYPE_CHECKING:
    from couchbase_lm_operator.api.spec_couchbase import CouchbaseSpec
    from couchbase_lm_operator.core.observed import Claim, MalformedModelConfig, Manifest, ModelConfig
    from couchbase_lm_operator.io.adapter_metrics import AdapterMetrics
    from couchbase_lm_operator.io.cluster import Cluster
    from couchbase_lm_operator.io.hf_hub import ModelHub

logger = logging.getLogger(__name__)

CREDENTIAL_KEYS = ("username", "password")
_CHILD_KINDS = ("Deployment", "Service", "ControllerRevision")
# all pods of a template store alike; a few of them tell enough of it
_MOST_PODS_ASKED = 4


@dataclass(frozen=True)
class Gatherer:
    """Reads for passes. ``namespaces`` are those that are watched; empty means all. A lost one claims nothing."""

    cluster: Cluster
    hub: ModelHub
    metrics: AdapterMetrics
    namespaces: tuple[str, ...]

    async def gather(self, resource: Manifest, spec: LMCacheCouchbaseSpec) -> Observed:
        """Return the picture of one resource, without Couchbase.

        Raises:
            ClusterError: the API server did not answer or refuses what the operator needs.
        """
        namespace = str(resource["metadata"]["namespace"])
        name = str(resource["metadata"]["name"])
        uid, children, claims = await asyncio.gather(
            self.namespace_uid(namespace), self._children(namespace, name), self._claims(resource, spec)
        )
        admin, user, token, ca_pem = await asyncio.gather(
            self.admin(namespace, spec.couchbase),
            self._user(namespace, name, spec.couchbase),
            self._token(namespace, spec),
            self.ca(namespace, spec.couchbase),
        )
        model_config = await self._model_config(resource, spec, token, children)
        pods, readings = await self._pods_and_readings(resource, children)
        return Observed(
            resource=resource,
            namespace_uid=uid,
            model_config=model_config,
            admin_credentials=admin,
            user_credentials=user,
            referenced=(token,) if isinstance(token, Missing | Unread) else (),
            ca_pem=ca_pem,
            couchbase=None,
            children=children,
            pods=pods,
            claims=claims,
            readings=readings,
        )

    async def bare(self, resource: Manifest, spec: LMCacheCouchbaseSpec | None = None) -> Observed:
        """Return the picture of a resource whose spec is not to be followed: itself, its children, its pods.

        With ``spec`` also what its engines log in with at Couchbase.

        Raises:
            ClusterError: the API server did not answer.
        """
        namespace, name = str(resource["metadata"]["namespace"]), str(resource["metadata"]["name"])
        uid, children = await asyncio.gather(self.namespace_uid(namespace), self._children(namespace, name))
        user = await self._user(namespace, name, spec.couchbase) if spec else None
        ca_pem = await self.ca(namespace, spec.couchbase) if spec else None
        return Observed(
            resource=resource,
            namespace_uid=uid,
            model_config=Missing("config.json, which was not looked for"),
            admin_credentials=None,
            user_credentials=user,
            referenced=(),
            ca_pem=ca_pem,
            couchbase=None,
            children=children,
            pods=await self._pods_of_concern(namespace, name, children),
            claims=(),
        )

    async def _pods_of_concern(
        self, namespace: str, name: str, children: dict[tuple[str, str], Manifest]
    ) -> tuple[PodState, ...]:
        """Return the pods, which are only looked at while the workload is not available."""
        deployment = children.get(("Deployment", name))
        if deployment is None or workload_state(deployment, ()).is_available:
            return ()
        return await self._pods(namespace, name)

    async def _pods_and_readings(
        self, resource: Manifest, children: dict[tuple[str, str], Manifest]
    ) -> tuple[tuple[PodState, ...], PodReadings | None]:
        """Return the pods of concern, and what they tell of their chunks while that is not recorded yet."""
        namespace, name = str(resource["metadata"]["namespace"]), str(resource["metadata"]["name"])
        deployment = children.get(("Deployment", name))
        if deployment is None or not has_one_template(deployment):
            return await self._pods_of_concern(namespace, name, children), None
        is_available = workload_state(deployment, ()).is_available
        revision = sizing_verdict.revision_to_read(resource.get("status") or {}, is_available=is_available)
        if not revision:
            return await self._pods_of_concern(namespace, name, children), None
        pods = await self._pods(namespace, name)
        tellers = [pod for pod in pods if pod.is_ready and not pod.is_deleting and pod.metrics_port and pod.address]
        asked = tellers[:_MOST_PODS_ASKED]
        answers = await asyncio.gather(*(self.metrics.read(pod.address, pod.metrics_port) for pod in asked))
        return pods, PodReadings(revision, len(asked), tuple(each for each in answers if each is not None))

    async def namespace_uid(self, namespace: str) -> str:
        """Return the UID of a namespace, or "" when it is gone."""
        found = await self.cluster.get("Namespace", "", namespace)
        return str(found["metadata"]["uid"]) if found else ""

    async def is_being_deleted(self, namespace: str) -> bool:
        """Say whether a namespace goes, or is gone; in the latter case nothing in it can be read any more."""
        found = await self.cluster.get("Namespace", "", namespace)
        return found is None or "deletionTimestamp" in found["metadata"]

    async def _children(self, namespace: str, name: str) -> dict[tuple[str, str], Manifest]:
        """Return our children by label, and whoever sits on the names we need."""
        selector = f"{OUR_CHILDREN},{names.LABEL_INSTANCE}={name}"
        lists = await asyncio.gather(
            *(self.cluster.objects(kind, namespace, label_selector=selector) for kind in _CHILD_KINDS)
        )
        found = {(item["kind"], item["metadata"]["name"]): item for items, _ in lists for item in items}
        needed = [(kind, name) for kind in ("Deployment", "Service") if (kind, name) not in found]
        others = await asyncio.gather(*(self.cluster.get(kind, namespace, each) for kind, each in needed))
        found |= {key: live for key, live in zip(needed, others, strict=True) if live is not None}
        record = ("ControllerRevision", lost_record.record_name(name, found.get(("Deployment", name))))
        if record[1] and record not in found:
            live = await self.cluster.get(record[0], namespace, record[1])
            found |= {record: live} if live is not None else {}
        return found

    async def _pods(self, namespace: str, name: str) -> tuple[PodState, ...]:
        selector = ",".join(f"{key}={value}" for key, value in names.selector_labels(name).items())
        pods, _ = await self.cluster.objects("Pod", namespace, label_selector=selector)
        return tuple(sorted((pod_state(pod) for pod in pods), key=lambda pod: pod.name))

    async def admin(self, namespace: str, spec: CouchbaseSpec) -> SecretValue | Missing | Unread | None:
        """Return the administrator's credentials; None when the spec wants none."""
        if spec.resolved_provisioning != "RestAPI" or spec.admin_secret_ref is None:
            return None
        field = "spec.couchbase.adminSecretRef"
        return await references.secret_values(
            self.cluster, namespace, spec.admin_secret_ref.name, CREDENTIAL_KEYS, field
        )

    async def _user(self, namespace: str, name: str, spec: CouchbaseSpec) -> SecretValue | Missing | Unread | None:
        if spec.resolved_provisioning == "External":
            if spec.credentials_secret_ref is None:
                return None
            secret, field = spec.credentials_secret_ref.name, "spec.couchbase.credentialsSecretRef"
        else:
            secret, field = names.credentials_secret(name), "status.couchbase.secretName"
        return await references.secret_values(self.cluster, namespace, secret, CREDENTIAL_KEYS, field)

    async def _token(self, namespace: str, spec: LMCacheCouchbaseSpec) -> SecretValue | Missing | Unread | None:
        reference = spec.model.token_secret_ref
        if reference is None:
            return None
        field = "spec.model.tokenSecretRef"
        return await references.secret_values(self.cluster, namespace, reference.name, (reference.key,), field)

    async def ca(self, namespace: str, spec: CouchbaseSpec) -> str | Missing | Unread | None:
        """Return the CA certificates; None when the spec names none."""
        if spec.tls is None:
            return None
        if spec.tls.ca_config_map_ref is not None:
            reference, field = spec.tls.ca_config_map_ref, "spec.couchbase.tls.caConfigMapRef"
            return await references.config_map_text(self.cluster, namespace, reference.name, reference.key, field)
        if spec.tls.ca_secret_ref is not None:
            reference, field = spec.tls.ca_secret_ref, "spec.couchbase.tls.caSecretRef"
            found = await references.secret_values(self.cluster, namespace, reference.name, (reference.key,), field)
            return found.values[reference.key] if isinstance(found, SecretValue) else found
        return None

    async def _model_config(
        self,
        resource: Manifest,
        spec: LMCacheCouchbaseSpec,
        token: SecretValue | Missing | Unread | None,
        children: dict[tuple[str, str], Manifest],
    ) -> ModelConfig | MalformedModelConfig | Missing | Unread:
        namespace = str(resource["metadata"]["namespace"])
        reference = spec.model.config.config_map_ref if spec.model.config else None
        if reference is not None:
            field = "spec.model.config.configMapRef"
            text = await references.config_map_text(self.cluster, namespace, reference.name, reference.key, field)
            source = f"key {reference.key} of ConfigMap {reference.name}"
            return parse_model_config(text, source) if isinstance(text, str) else text
        if isinstance(token, Missing | Unread):
            return token
        hub = spec.model.config.hub if spec.model.config else None
        model = HubModel(
            model_id=spec.model.id,
            revision=spec.model.revision or "",
            endpoint=hub.endpoint if hub else DEFAULT_ENDPOINT,
            token=next(iter(token.values.values())) if token else "",
        )
        found = await self.hub.config(model)
        if not isinstance(found, Unread) or not found.is_outage:
            return found
        kept = kept_config.from_records(children.values(), str(resource["metadata"]["uid"]), model.question)
        if kept is not None:
            what = {"resource": f"{namespace}/{resource['metadata']['name']}", "problem": found.detail}
            logger.warning("the hub does not answer, the config.json of the last pod template stands in", extra=what)
        return kept or found

    async def _claims(self, resource: Manifest, spec: LMCacheCouchbaseSpec) -> tuple[Claim, ...]:
        """Return the claims of all other resources on what may be the same Couchbase cluster."""
        own_hosts = _hosts(spec.couchbase.connection_string)
        resources, _ = await resources_of(self.cluster, self.namespaces)
        return tuple(
            _claim(other)
            for other in resources
            if other["metadata"]["uid"] != resource["metadata"]["uid"]
            and own_hosts & _hosts(str(((other.get("spec") or {}).get("couchbase") or {}).get("connectionString", "")))
        )


def _hosts(text: str) -> set[str]:
    try:
        return {address.host.lower() for address in connection_string.parse(text).kv_addresses}
    except connection_string.ConnectionStringError:
        return set()


def _claim(resource: Manifest) -> Claim:
    """Return what a resource names, or what its status says that it got.

    A derived name carries its own namespace's UID: it can only meet an explicit name, and then it stands in
    the status of the resource that got it.
    """
    couchbase = (resource.get("spec") or {}).get("couchbase") or {}
    recorded = (resource.get("status") or {}).get("couchbase") or {}
    bucket, user = couchbase.get("bucket") or {}, couchbase.get("user") or {}
    is_external = couchbase.get("provisioning", "External" if "adminSecretRef" not in couchbase else "") == "External"
    bucket_name = str(bucket.get("name") or (recorded.get("bucket") or {}).get("name") or "")
    user_name = "" if is_external else str(user.get("name") or recorded.get("user") or "")
    return claim(
        resource,
        bucket=bucket_name,
        user=user_name,
        owns_bucket=not is_external and bucket.get("management", "Owned") == "Owned",
        record=bucket_record.from_status(recorded),
    )
