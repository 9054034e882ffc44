"""What vLLM runs with once every open field is worked out, and why. Pure.

Everything that may shape the cache is pinned by a flag, so that the same resource gives the same layout
on every node: data types, block, attention backend, longest context, commit of the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.choice import Choice
from couchbase_lm_operator.core.refusal import RefusedError

if TYPE_CHECKING:
    from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec
    from couchbase_lm_operator.core.defaults import Defaults
    from couchbase_lm_operator.core.model_shape import ModelShape

CPU = "CPU"
_DEFAULT_BLOCK_TOKENS = {CPU: 128, "NVIDIA": 16}
_BLOCK_STEP_TOKENS = {CPU: 32, "NVIDIA": 16}


@dataclass(frozen=True)
class EngineValues:
    """The resolved engine. ``kv_cache_dtype`` is vLLM's flag value; ``element_type`` what is stored.

    ``block_flag_tokens`` is None when vLLM decides (models whose numbers a person gave).
    """

    image: str
    vendor: str
    model: str
    revision: str
    served_model_name: str
    dtype: str
    kv_cache_dtype: str
    element_type: str
    block_tokens: int
    block_flag_tokens: int | None
    attention_backend: str
    max_model_len: int
    tensor_parallel_size: int
    pipeline_parallel_size: int
    choices: tuple[Choice, ...]

    @property
    def is_path(self) -> bool:
        """Say whether the model is a path inside the pod."""
        return self.model.startswith("/")


def resolve(spec: LMCacheCouchbaseSpec, shape: ModelShape, revision: str, defaults: Defaults) -> EngineValues:
    """Return the engine's values.

    ``revision`` is the commit that config.json was read at, empty when it came from a ConfigMap: then the
    weights of a hub model are those of ``spec.model.revision`` as it was written.

    Raises:
        RefusedError: a block size the device does not take.
    """
    engine, vendor = spec.engine, spec.accelerator.vendor
    choices: list[Choice] = []

    def chosen(field: str, given: str | None, default: str, reason: str) -> str:
        if given is not None:
            return given
        choices.append(Choice(f"engine.{field}", default, reason))
        return default

    kv_dtype = engine.kv_cache_dtype or shape.kv_dtype
    if engine.kv_cache_dtype is None:
        why = "the checkpoint asks for it" if shape.kv_dtype else "the model's data type"
        choices.append(Choice("engine.kvCacheDtype", shape.kv_dtype or "auto", why))
    dtype_reason = "the checkpoint's" if shape.dtype != "float32" else "float32 checkpoints are run as bfloat16"
    dtype = chosen("dtype", engine.dtype, shape.dtype if shape.dtype != "float32" else "bfloat16", dtype_reason)
    return EngineValues(
        image=chosen("image", engine.image, defaults.engine_images[vendor], f"tested image for vendor {vendor}"),
        vendor=vendor,
        model=spec.model.id,
        revision="" if spec.model.id.startswith("/") else revision or spec.model.revision or "",
        served_model_name=chosen("servedModelName", engine.served_model_name, _served_name(spec.model.id), "model.id"),
        dtype=dtype,
        kv_cache_dtype=kv_dtype or "auto",
        element_type=kv_dtype or dtype,
        block_tokens=_block_tokens(spec, choices),
        block_flag_tokens=engine.block_size or (None if spec.model.override else _DEFAULT_BLOCK_TOKENS[vendor]),
        attention_backend=chosen("attentionBackend", engine.attention_backend, *_backend(vendor, kv_dtype)),
        max_model_len=_max_model_len(spec, shape, choices),
        tensor_parallel_size=engine.tensor_parallel_size,
        pipeline_parallel_size=engine.pipeline_parallel_size,
        choices=tuple(choices),
    )


def _served_name(model: str) -> str:
    return model.rstrip("/").rsplit("/", 1)[-1] if model.startswith("/") else model


def _backend(vendor: str, kv_dtype: str | None) -> tuple[str, str]:
    if vendor == CPU:
        return "CPU_ATTN", "the only one on CPU"
    if kv_dtype is not None:
        return "FLASHINFER", "takes an 8-bit KV cache on all supported GPUs"
    return "FLASH_ATTN", "pinned, as vLLM's own choice depends on the GPU and may shape the cache"


def _block_tokens(spec: LMCacheCouchbaseSpec, choices: list[Choice]) -> int:
    vendor, given = spec.accelerator.vendor, spec.engine.block_size
    step = _BLOCK_STEP_TOKENS[vendor]
    if given is not None and given % step:
        raise RefusedError(
            Reason.INVALID_SPEC,
            f"spec.engine.blockSize {given}: with vendor {vendor} it must be a multiple of {step}.",
        )
    if spec.model.override is not None:
        return spec.model.override.block_size
    if given is not None:
        return given
    default = _DEFAULT_BLOCK_TOKENS[vendor]
    choices.append(Choice("engine.blockSize", str(default), f"vLLM's own for vendor {vendor}"))
    return default


def _max_model_len(spec: LMCacheCouchbaseSpec, shape: ModelShape, choices: list[Choice]) -> int:
    given = spec.engine.max_model_len
    if given is None:
        choices.append(Choice("engine.maxModelLen", str(shape.max_model_len), "max_position_embeddings of config.json"))
        return shape.max_model_len
    return given
