"""``spec.cache``: how the KV cache is cut, kept and shared. Pure."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from couchbase_lm_operator.api.schema import LIST_ATOMIC, Argument, Bytes, Duration, Model, NamedPart, PodPart, list_map


class WorkingSetSpec(Model):
    """What the bucket should be able to hold; a wish from which its quota is worked out."""

    contexts: int = Field(default=100, ge=1, le=100_000_000, description="Contexts that should stay in the cache.")
    tokens_per_context: int | None = Field(
        default=None,
        ge=1,
        le=100_000_000,
        description="Tokens of a typical context; absent: 8192, or the longest context when that is less.",
    )


class CacheSpec(Model):
    """The KV cache: chunks in memory beside the engine (L1) and in Couchbase (L2)."""

    ttl: Duration = Field(
        default="24h",
        description="Lifetime of a cached chunk since it was last used, for example 90m or 1d12h; 0 keeps it for ever.",
    )
    refresh_ttl: bool = Field(
        default=True, alias="refreshTTL", description="A hit renews the lifetime when less than half of it is left."
    )
    chunk_size: int | None = Field(
        default=None,
        ge=1,
        le=1 << 20,
        description="Tokens of a chunk, a multiple of the engine's block; absent: worked out from the model.",
    )
    shard_size: Bytes | None = Field(
        default=None, description="Size of one document, at most 16Mi; absent: 1Mi, more for very large chunks."
    )
    l1_size: Bytes | None = Field(
        default=None,
        description="Memory for the cache beside the engine, for example 16Gi; absent: worked out, up to the "
        "operator's limit.",
    )
    working_set: WorkingSetSpec | None = Field(default=None, description="What the bucket should be able to hold.")
    transfer: Literal["EngineDriven", "LMCacheDriven"] | None = Field(
        default=None,
        description="Who copies KV blocks between the engine and L1. EngineDriven works on every device, for layers "
        "that are cached alike. LMCacheDriven needs access to the engine's memory: vendor CPU with deviceBackend "
        "hostcpu. Absent: EngineDriven where it can carry the model's layers.",
    )
    key_prefix: str | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        pattern=r"^[A-Za-z0-9._:-]+$",
        description="Start of every key. Absent: a fingerprint of everything that changes bytes but not keys. Setting "
        "it means that you answer for never mixing incompatible engines.",
    )
    share_group: str | None = Field(
        default=None,
        min_length=1,
        max_length=63,
        pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
        description="Resources with the same group derive the same collection. Alone that shares nothing: for one "
        "cache, as of blue and green, couchbase.bucket must also name the same bucket with management Shared, and the "
        "scope, which is derived from the namespace, and the key prefixes must be the same.",
    )
    adapter_params: PodPart | None = Field(
        default=None, description="More parameters of the Couchbase adapter. What the operator sets is refused."
    )
    extra_args: list[Argument] = Field(
        default_factory=list,
        max_length=64,
        json_schema_extra=LIST_ATOMIC,
        description="More arguments for lmcache server. Flags that the operator sets are refused, in any spelling.",
    )
    env: list[NamedPart] = Field(
        default_factory=list,
        max_length=64,
        json_schema_extra=list_map("name"),
        description="More environment variables of the LMCache server (as in a pod).",
    )
    resources: PodPart | None = Field(
        default=None, description="Requests and limits of the LMCache server (as in a pod); absent: worked out from L1."
    )
