"""``status``: what the operator saw and worked out. Pure.

Nothing here moves by itself (no hit rates, no poll times): a steady resource is never written.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from couchbase_lm_operator.api.schema import Model, list_map

Text = Annotated[str, Field(max_length=1024)]
Quantity = Annotated[str, Field(max_length=32)]


class Condition(Model):
    """One aspect of the resource's state, as in metav1.Condition."""

    type: str = Field(max_length=316, description="Name of the aspect.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    reason: str = Field(max_length=1024, description="One CamelCase word, for programs.")
    message: str = Field(max_length=32768, description="A sentence for people.")
    last_transition_time: str = Field(
        max_length=64, json_schema_extra={"format": "date-time"}, description="When status last changed."
    )
    observed_generation: int | None = Field(default=None, description="Generation of the spec that this is about.")


class KvBytesPerToken(Model):
    """Bytes of KV cache per token."""

    rank: int | None = Field(default=None, description="On the rank that holds most.")
    all: int | None = Field(default=None, description="On all ranks together.")


class ModelStatus(Model):
    """What was worked out from the model's configuration."""

    model_type: Text | None = Field(default=None, description="model_type of config.json.")
    architecture: Text | None = Field(default=None, description="Architecture that config.json names.")
    revision: Text | None = Field(default=None, description="Commit of the model.")
    evidence: Text | None = Field(
        default=None,
        description="What says that the numbers are right: a real run, vLLM's own code, a formula, or your override.",
    )
    kv_bytes_per_token: KvBytesPerToken | None = Field(default=None, description="Bytes of attention layers per token.")
    state_bytes: int | None = Field(
        default=None, description="Bytes of one snapshot of all recurrent layers on the rank that holds most."
    )
    ranks: int | None = Field(default=None, description="Ranks that store an object of each object group per chunk.")
    block_size: int | None = Field(default=None, description="Tokens of the engine's KV block.")
    chunk_size: int | None = Field(default=None, description="Tokens of a chunk.")
    object_bytes: list[int] | None = Field(
        default=None,
        max_length=256,
        description="Bytes of one chunk on the rank that holds most, by object group in LMCache's order.",
    )
    shard_size: Quantity | None = Field(default=None, description="Size of one document.")
    documents_per_chunk: int | None = Field(
        default=None, description="Documents of one chunk on all ranks, with manifests."
    )
    config_digest: Text | None = Field(default=None, description="Digest of config.json.")


class CapacityStatus(Model):
    """What fits where."""

    bytes_per_context: int | None = Field(default=None, description="Bytes of one typical context in the bucket.")
    loaded_bytes_per_context: int | None = Field(
        default=None, description="Bytes that one request with a typical context loads."
    )
    contexts_in_l1: int | None = Field(
        default=None, alias="contextsInL1", description="Typical contexts that fit into L1."
    )
    contexts_in_bucket: int | None = Field(default=None, description="Typical contexts that fit into the bucket.")
    longest_cacheable_tokens: int | None = Field(
        default=None, description="Longest context that L1 can load or store; longer ones are recomputed."
    )
    quota: Quantity | None = Field(default=None, description="Memory of the bucket on all data nodes.")
    l1: Quantity | None = Field(default=None, description="Memory for the cache beside each engine.")
    load_time: Quantity | None = Field(
        default=None,
        description="Time to load a typical context from Couchbase: predicted, then at the speed of 20 or more real "
        "loads.",
    )
    recompute_time: Quantity | None = Field(
        default=None, description="Predicted time to compute a typical context again; absent when nobody knows."
    )
    worthwhile: bool | None = Field(
        default=None, description="Whether loading takes less time than computing; absent when nobody knows."
    )
    shared_memory: Quantity | None = Field(default=None, description="Size of /dev/shm in the pod.")


class BucketStatus(Model):
    """The bucket, as it was recorded. An entry without UUID is an intent to create it."""

    name: Text | None = Field(default=None, description="Name of the bucket.")
    uuid: Text | None = Field(default=None, description="UUID of the bucket.")
    cluster_uuid: Text | None = Field(default=None, alias="clusterUUID", description="UUID of the Couchbase cluster.")
    created: bool | None = Field(default=None, description="Whether the operator created it.")
    removed_by_others_count: int | None = Field(default=None, description="How often somebody else removed it.")
    requested_quota: Quantity | None = Field(
        default=None, description="Memory per data node that the spec asked for and that was applied last."
    )
    user: Text | None = Field(default=None, description="Name of the generated user that was recorded.")
    user_uuid: Text | None = Field(default=None, alias="userUUID", description="UUID of the generated user.")
    user_removed_by_others_count: int | None = Field(
        default=None, description="How often somebody else removed the generated user."
    )
    refused_generation: int | None = Field(
        default=None, description="Generation at which a second removal by others stopped provisioning."
    )


class CouchbaseStatus(Model):
    """What is used of Couchbase."""

    provisioning: Text | None = Field(default=None, description="Provisioning mode in effect.")
    edition: Text | None = Field(default=None, description="Enterprise or Community.")
    server_version: Text | None = Field(default=None, description="Version of the servers.")
    bucket: BucketStatus | None = Field(default=None, description="The bucket.")
    scope: Text | None = Field(default=None, description="The scope.")
    collection: Text | None = Field(default=None, description="The collection.")
    user: Text | None = Field(default=None, description="The user that the pods log in as.")
    secret_name: Text | None = Field(default=None, description="Secret with that user's credentials.")
    key_prefix: Text | None = Field(default=None, description="Start of every key.")
    provisioned_digest: Text | None = Field(
        default=None, description="Digest of the Couchbase part of the spec that was last brought into effect."
    )


class TransferStatus(Model):
    """How KV blocks move between the engine and L1."""

    mode: Text | None = Field(default=None, description="Transfer mode in effect.")
    reason: Text | None = Field(default=None, description="Why this mode.")


class ObservationStatus(Model):
    """What pods really store and how fast they load, recorded once for a pod template."""

    revision: Text | None = Field(default=None, description="Pod template whose pods were asked.")
    object_bytes: list[int] | None = Field(
        default=None,
        max_length=256,
        description="Bytes of one chunk on the rank that holds most, by object group, as stored.",
    )
    ranks: int | None = Field(default=None, description="Ranks that store an object for each chunk.")
    load_bytes_per_second: int | None = Field(
        default=None, description="Speed of 20 or more real loads from Couchbase, with two significant digits."
    )


class WorkloadStatus(Model):
    """The engine pods."""

    replicas: int | None = Field(default=None, description="Pods that exist.")
    ready_replicas: int | None = Field(default=None, description="Pods that are ready.")
    selector: Text | None = Field(default=None, description="Label selector of the pods, for the scale subresource.")
    url: Text | None = Field(default=None, description="URL of the OpenAI-compatible API inside the cluster.")
    revision: Text | None = Field(default=None, description="Pod template in effect.")
    pending_revision: Text | None = Field(
        default=None,
        description="Pod template that this operator would render; name it in spec.rollout.approve to roll it out.",
    )


class WarningStatus(Model):
    """One thing that works but is probably not meant."""

    reason: str = Field(max_length=64, description="One CamelCase word, for programs.")
    message: str = Field(max_length=1024, description="A sentence for people.")


class LMCacheCouchbaseStatus(Model):
    """What was observed. Written by the operator."""

    observed_generation: int = Field(default=-1, description="Generation of the spec that this status is about.")
    conditions: list[Condition] = Field(
        default_factory=list,
        max_length=32,
        json_schema_extra=list_map("type"),
        description="Ready is the summary; Reconciling and Stalled are present only when true.",
    )
    warnings: list[WarningStatus] = Field(
        default_factory=list,
        max_length=32,
        json_schema_extra=list_map("reason"),
        description="What works but is probably not meant. Absent when there is nothing to tell.",
    )
    model: ModelStatus | None = Field(default=None, description="What was worked out from the model's configuration.")
    capacity: CapacityStatus | None = Field(default=None, description="What fits where.")
    couchbase: CouchbaseStatus | None = Field(default=None, description="What is used of Couchbase.")
    transfer: TransferStatus | None = Field(default=None, description="How KV blocks move between the engine and L1.")
    observation: ObservationStatus | None = Field(
        default=None, description="What pods of the template in effect really store and how fast they load."
    )
    workload: WorkloadStatus | None = Field(default=None, description="The engine pods.")
