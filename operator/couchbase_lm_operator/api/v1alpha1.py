"""LMCacheCouchbase v1alpha1: the one schema of the resource. Pure.

The pydantic models are the only description: the CRD, the chart's schema and the reference are made
from them. Absent fields mean "worked out"; what was worked out is shown in status.
"""

from __future__ import annotations

from typing import Any

from kube_custom_resource.custom_resource import CustomResource
from pydantic import ConfigDict, Field

from couchbase_lm_operator import names
from couchbase_lm_operator.api.schema import Duration, Model, rule, rules
from couchbase_lm_operator.api.spec_cache import CacheSpec
from couchbase_lm_operator.api.spec_couchbase import CouchbaseSpec
from couchbase_lm_operator.api.spec_engine import AcceleratorSpec, EngineSpec, PluginSpec
from couchbase_lm_operator.api.spec_model import ModelSpec
from couchbase_lm_operator.api.spec_pod import PodTemplateSpec, RolloutSpec, ServiceSpec
from couchbase_lm_operator.api.status import LMCacheCouchbaseStatus


class LMCacheCouchbaseSpec(Model):
    """A vLLM deployment whose KV cache is shared through Couchbase. Absent fields are worked out."""

    suspend: bool = Field(default=False, description="Change nothing, but keep observing.")
    model: ModelSpec = Field(description="The model that is served.")
    couchbase: CouchbaseSpec = Field(description="The Couchbase cluster and what the cache uses of it.")
    cache: CacheSpec = Field(default_factory=CacheSpec, description="How the KV cache is cut, kept and shared.")
    engine: EngineSpec = Field(default_factory=EngineSpec, description="How vLLM runs.")
    accelerator: AcceleratorSpec = Field(default_factory=AcceleratorSpec, description="What the engine runs on.")
    plugin: PluginSpec = Field(default_factory=PluginSpec, description="The Couchbase adapter for LMCache.")
    replicas: int = Field(default=1, ge=0, le=1000, description="Number of engine pods.")
    rollout: RolloutSpec = Field(default_factory=RolloutSpec, description="How changed pods replace old ones.")
    termination_grace_period: Duration = Field(
        default="120s",
        description="How long a pod may take to finish requests and to store what is in flight, from 10s to 24h.",
    )
    pod_template: PodTemplateSpec = Field(
        default_factory=PodTemplateSpec, description="What is added to the rendered pods."
    )
    service: ServiceSpec = Field(default_factory=ServiceSpec, description="The Service in front of the pods.")


_COLUMNS: list[dict[str, Any]] = [
    {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
    {"name": "Reason", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].reason'},
    {"name": "Model", "type": "string", "jsonPath": ".spec.model.id"},
    {"name": "Replicas", "type": "integer", "jsonPath": ".status.workload.readyReplicas"},
    {"name": "Chunk", "type": "integer", "jsonPath": ".status.model.chunkSize"},
    {"name": "Bucket", "type": "string", "jsonPath": ".status.couchbase.bucket.name"},
    {"name": "Transfer", "type": "string", "jsonPath": ".status.transfer.mode", "priority": 1},
    {
        "name": "Cache",
        "type": "string",
        "jsonPath": '.status.conditions[?(@.type=="CacheHealthy")].status',
        "priority": 1,
    },
    {"name": "URL", "type": "string", "jsonPath": ".status.workload.url", "priority": 1},
]

_SCALE = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.workload.replicas",
    "labelSelectorPath": ".status.workload.selector",
}


class LMCacheCouchbase(  # type: ignore[call-arg, metaclass]
    CustomResource,
    version=names.VERSION,
    kind=names.KIND,
    singular_name=names.SINGULAR,
    plural_name=names.PLURAL,
    short_names=[names.SHORT_NAME],
    subresources={"status": {}, "scale": _SCALE},
    printer_columns=_COLUMNS,
):
    """Serves a model with vLLM and shares its KV cache through Couchbase."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
                "metadata.name becomes the name of a Service: at most 63 of a-z, 0-9 and -, starting with a letter",
            )
        )
    )
    spec: LMCacheCouchbaseSpec = Field(description="What is wanted.")
    status: LMCacheCouchbaseStatus = Field(
        default_factory=LMCacheCouchbaseStatus, description="What was observed. Written by the operator."
    )
