"""``spec.engine``, ``spec.accelerator`` and ``spec.plugin``: how vLLM runs, and on what. Pure."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from couchbase_lm_operator.api.schema import (
    LIST_ATOMIC,
    Argument,
    Duration,
    Model,
    NamedPart,
    PodPart,
    list_map,
)


class EngineSpec(Model):
    """The vLLM engine. One image runs both vLLM and the LMCache server."""

    image: str | None = Field(
        default=None,
        min_length=1,
        max_length=512,
        pattern=r"^[^\s]+$",
        description="Image with vLLM and LMCache, best with its digest: the name is what counts in the key prefix. "
        "Absent: the tested one of this operator release for the vendor.",
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        default="IfNotPresent", description="When the image is pulled."
    )
    python: str = Field(
        default="python3",
        min_length=1,
        max_length=256,
        pattern=r"^[A-Za-z0-9._/+-]+$",
        description="The interpreter in the image that has vLLM and LMCache.",
    )
    tensor_parallel_size: int = Field(default=1, ge=1, le=64, description="Ranks that share each layer.")
    pipeline_parallel_size: int = Field(default=1, ge=1, le=64, description="Ranks that share the stack of layers.")
    kv_cache_dtype: Literal["fp8", "fp8_e4m3", "fp8_e5m2"] | None = Field(
        default=None, description="8-bit KV cache; absent: what the checkpoint asks for, else the model's data type."
    )
    dtype: Literal["bfloat16", "float16", "float32"] | None = Field(
        default=None, description="Data type of the model; absent: the checkpoint's, with float32 run as bfloat16."
    )
    max_model_len: int | None = Field(
        default=None,
        ge=1,
        le=100_000_000,
        description="Longest context in tokens, not above what config.json allows, which it is when absent.",
    )
    block_size: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="Tokens of a KV block; absent: 16, and 128 with vendor CPU, which takes multiples of 32 only. "
        "Latent attention: 64, and 16 with vendor CPU. Recurrent layers stretch it.",
    )
    attention_backend: str | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        pattern=r"^[A-Z0-9_]+$",
        description="vLLM's attention backend; absent: FLASH_ATTN, FLASHINFER for an 8-bit cache, FLASHMLA for latent "
        "attention, CPU_ATTN or CPU_MLA with vendor CPU. It is pinned because it may shape the cache.",
    )
    gpu_memory_utilization: str | None = Field(
        default=None,
        max_length=8,
        pattern=r"^(0?\.[0-9]{1,4}|1(\.0{1,4})?)$",
        description='Share of the GPU memory that vLLM uses, as a string, for example "0.9". Absent: vLLM decides.',
    )
    served_model_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        pattern=r"^[^\s-][^\s]*$",
        description="Name of the model in the API; absent: model.id, or the last part of a path.",
    )
    extra_args: list[Argument] = Field(
        default_factory=list,
        max_length=64,
        json_schema_extra=LIST_ATOMIC,
        description="More arguments for vllm serve. Flags that the operator sets are refused, in any spelling.",
    )
    env: list[NamedPart] = Field(
        default_factory=list,
        max_length=64,
        json_schema_extra=list_map("name"),
        description="More environment variables (as in a pod). Names that the operator sets are refused.",
    )
    env_from: list[PodPart] = Field(
        default_factory=list,
        max_length=16,
        json_schema_extra=LIST_ATOMIC,
        description="Environment variables from Secrets and ConfigMaps (as in a pod).",
    )
    resources: PodPart | None = Field(
        default=None,
        description="Requests and limits of vLLM (as in a pod). GPUs are added by the operator; a memory limit gets "
        "the shared memory of the cache on top.",
    )
    startup_timeout: Duration = Field(
        default="30m",
        description="How long vLLM may take to load, 7d at most; the rollout counts as failed after twice that.",
    )


class AcceleratorSpec(Model):
    """What the engine runs on."""

    vendor: Literal["NVIDIA", "CPU"] = Field(default="NVIDIA", description="Kind of device. CPU needs no GPU at all.")
    resource_name: str | None = Field(
        default=None,
        min_length=3,
        max_length=253,
        pattern=r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$",
        description="Extended resource that stands for one GPU; absent: nvidia.com/gpu.",
    )
    device_backend: str | None = Field(
        default=None,
        min_length=1,
        max_length=63,
        pattern=r"^[a-z0-9_]+$",
        description="LMCache device backend of the operator's wheels, for both vLLM and the LMCache server: hostcpu "
        "with vendor CPU copies much faster than LMCache's own. Absent: LMCache's own for the vendor.",
    )


class PluginSpec(Model):
    """The Couchbase adapter for LMCache."""

    source: Literal["Bundled", "Preinstalled"] = Field(
        default="Bundled",
        description="Bundled: an init container unpacks the operator's wheels. Preinstalled: the image has them.",
    )
