"""``spec.podTemplate``, ``spec.service`` and ``spec.rollout``: the shape of what Kubernetes runs. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from couchbase_lm_operator.api.schema import (
    LIST_ATOMIC,
    IntOrPercent,
    Model,
    NamedPart,
    ObjectName,
    PodPart,
    list_map,
)

LabelValue = Annotated[str, Field(max_length=63)]
AnnotationValue = Annotated[str, Field(max_length=4096)]


class PodMetadata(Model):
    """Labels and annotations that are added to the pods."""

    labels: dict[str, LabelValue] = Field(
        default_factory=dict,
        max_length=32,
        description="More labels of the pods. The operator's own labels cannot be overridden.",
    )
    annotations: dict[str, AnnotationValue] = Field(
        default_factory=dict, max_length=32, description="More annotations of the pods."
    )


class PodTemplateSpec(Model):
    """What is added to the rendered pods. Pod parts are judged by the API server in a dry run."""

    metadata: PodMetadata | None = Field(default=None, description="Labels and annotations of the pods.")
    image_pull_secrets: list[NamedPart] = Field(
        default_factory=list, max_length=8, json_schema_extra=list_map("name"), description="Secrets for the registry."
    )
    node_selector: dict[str, LabelValue] = Field(
        default_factory=dict, max_length=32, description="Labels that a node must have."
    )
    tolerations: list[PodPart] = Field(
        default_factory=list, max_length=32, json_schema_extra=LIST_ATOMIC, description="Taints that are tolerated."
    )
    affinity: PodPart | None = Field(default=None, description="Affinity rules (as in a pod).")
    topology_spread_constraints: list[PodPart] = Field(
        default_factory=list,
        max_length=16,
        json_schema_extra=LIST_ATOMIC,
        description="How pods are spread over the cluster (as in a pod).",
    )
    priority_class_name: ObjectName | None = Field(default=None, description="PriorityClass of the pods.")
    scheduler_name: ObjectName | None = Field(default=None, description="Scheduler of the pods.")
    service_account_name: ObjectName | None = Field(
        default=None, description="ServiceAccount of the pods. Its token is not mounted."
    )
    run_as_user: int = Field(default=10001, ge=1, le=2_147_483_647, description="User id of all containers.")
    fs_group: int | None = Field(
        default=None, ge=1, le=2_147_483_647, description="Group id of the volumes; absent: the same as runAsUser."
    )
    volumes: list[NamedPart] = Field(
        default_factory=list,
        max_length=32,
        json_schema_extra=list_map("name"),
        description="More volumes: persistentVolumeClaim, configMap, secret, emptyDir, ephemeral, csi, image; hostPath "
        "only where the operator allows it.",
    )
    volume_mounts: list[NamedPart] = Field(
        default_factory=list,
        max_length=32,
        json_schema_extra=LIST_ATOMIC,
        description="Mounts of those volumes in vLLM and in the LMCache server. They are part of the key prefix.",
    )


class ServiceSpec(Model):
    """The Service in front of the pods."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = Field(
        default="ClusterIP", description="Type of the Service."
    )
    port: int = Field(default=8000, ge=1, le=65535, description="Port of the Service; the pods always listen on 8000.")
    annotations: dict[str, AnnotationValue] = Field(
        default_factory=dict, max_length=32, description="Annotations of the Service."
    )


class RolloutSpec(Model):
    """How changed pods replace old ones."""

    max_surge: IntOrPercent = Field(
        default=0, description="Pods above the wanted number during a rollout. GPUs are rarely free."
    )
    max_unavailable: IntOrPercent = Field(default=1, description="Pods below the wanted number during a rollout.")
    approve: str | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        pattern=r"^[a-z0-9]+$",
        description="The pending revision (status.workload.pendingRevision) to roll out: pods are never changed by an "
        "upgrade of the operator alone.",
    )
