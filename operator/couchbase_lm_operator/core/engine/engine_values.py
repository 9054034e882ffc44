"""What vLLM runs with once every open field is worked out, and why. Pure.

Everything that may shape the cache is pinned by a flag, so that the same resource gives the same layout
on every node: data types, block, attention backend, longest context, commit of the model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from couchbase_lm_operator.core.choice import Choice
from couchbase_lm_operator.core.engine.element_types import AUTO, resolved_dtype
from couchbase_lm_operator.core.engine.engine_block import engine_block_tokens
from couchbase_lm_operator.core.engine.engine_kernels import default_kernels, is_latent, is_sparse
from couchbase_lm_operator.core.engine.engine_layout import CUDA, EngineLayout
from couchbase_lm_operator.core.engine.layout_flags import read_layout_flags
from couchbase_lm_operator.core.model.context_length import refuse_longer
from couchbase_lm_operator.core.model.layer_cache import State

if TYPE_CHECKING:
    from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec
    from couchbase_lm_operator.core.defaults import Defaults
    from couchbase_lm_operator.core.model.model_shape import ModelShape
    from couchbase_lm_operator.core.observed import ModelConfig

CPU = "CPU"
_PLATFORMS = {CPU: "cpu", "NVIDIA": CUDA}


@dataclass(frozen=True)
class EngineValues:
    """The resolved engine. ``layout`` is all of it that shapes the cache.

    ``block_flag_tokens`` is None when vLLM decides (models whose numbers a person gave).
    """

    image: str
    vendor: str
    model: str
    revision: str
    served_model_name: str
    layout: EngineLayout
    block_flag_tokens: int | None
    max_model_len: int
    choices: tuple[Choice, ...]

    @property
    def is_path(self) -> bool:
        """Say whether the model is a path inside the pod."""
        return self.model.startswith("/")

    @property
    def gpu_count(self) -> int:
        """Return the devices of one pod."""
        return self.layout.tensor_parallel_size * self.layout.pipeline_parallel_size


def resolve(spec: LMCacheCouchbaseSpec, shape: ModelShape, config: ModelConfig, defaults: Defaults) -> EngineValues:
    """Return the engine's values.

    The weights of a hub model are those of the commit that ``config`` was read at, or, when it came from a
    ConfigMap, of ``spec.model.revision`` as it was written.

    Raises:
        RefusedError: a block size the device does not take, a context longer than the model's, or an argument
            that this model's layers cannot do with.
    """
    engine, vendor, model = spec.engine, spec.accelerator.vendor, spec.model.id
    choices: list[Choice] = []

    def chosen(field: str, given: str | None, default: str, reason: str) -> str:
        if given is not None:
            return given
        choices.append(Choice(f"engine.{field}", default, reason))
        return default

    kv_dtype = engine.kv_cache_dtype or shape.kv_dtype
    dtype = engine.dtype or resolved_dtype(None, shape.dtype)
    why = "the checkpoint asks for it" if shape.kv_dtype else "the model's data type"
    # left to itself, vLLM keeps these models in 8 bits on some GPUs
    own_kv_dtype = dtype if is_sparse(shape) else AUTO
    kernels = default_kernels(shape, is_cpu=vendor == CPU, has_8_bit_cache=kv_dtype is not None)
    dtype_reason = "the checkpoint's" if shape.dtype != "float32" else "float32 checkpoints are run as bfloat16"
    given = read_layout_flags(engine.extra_args)
    if any(isinstance(cache, State) for layer in shape.layers for cache in layer):
        given.refuse_for_recurrent_layers()
    layout = EngineLayout(
        platform=_PLATFORMS[vendor],
        tensor_parallel_size=engine.tensor_parallel_size,
        pipeline_parallel_size=engine.pipeline_parallel_size,
        kv_cache_dtype=chosen("kvCacheDtype", engine.kv_cache_dtype, shape.kv_dtype or own_kv_dtype, why),
        dtype=chosen("dtype", engine.dtype, dtype, dtype_reason),
        attention_backend=chosen("attentionBackend", engine.attention_backend, *kernels),
        mamba_ssm_cache_dtype=given.mamba_ssm_cache_dtype,
        mamba_cache_dtype=given.mamba_cache_dtype,
        max_num_batched_tokens=given.max_num_batched_tokens,
    )
    layout, block_flag = _with_block(spec, shape, layout, choices)
    return EngineValues(
        image=chosen("image", engine.image, defaults.engine_images[vendor], f"tested image for vendor {vendor}"),
        vendor=vendor,
        model=model,
        revision="" if model.startswith("/") else config.revision or spec.model.revision or "",
        served_model_name=chosen("servedModelName", engine.served_model_name, _served_name(model), "model.id"),
        layout=layout,
        block_flag_tokens=block_flag,
        max_model_len=_max_model_len(spec, shape, config, choices),
        choices=tuple(choices),
    )


def _served_name(model: str) -> str:
    return model.rstrip("/").rsplit("/", 1)[-1] if model.startswith("/") else model


def _with_block(
    spec: LMCacheCouchbaseSpec, shape: ModelShape, layout: EngineLayout, choices: list[Choice]
) -> tuple[EngineLayout, int | None]:
    """Return the layout with its block, and the block that vLLM is told, if it is."""
    given, override = spec.engine.block_size, spec.model.override
    if override is not None:
        return replace(layout, block_size=override.block_size), given
    tokens = engine_block_tokens(replace(layout, block_size=given), is_latent=is_latent(shape))
    if given is None:
        reason = f"vLLM's own for vendor {spec.accelerator.vendor} and {layout.attention_backend}"
        choices.append(Choice("engine.blockSize", str(tokens), reason))
    return replace(layout, block_size=tokens), tokens


def _max_model_len(spec: LMCacheCouchbaseSpec, shape: ModelShape, config: ModelConfig, choices: list[Choice]) -> int:
    given = spec.engine.max_model_len
    if given is None:
        choices.append(Choice("engine.maxModelLen", str(shape.max_model_len), "max_position_embeddings of config.json"))
        return shape.max_model_len
    refuse_longer(given, config.content, shape.max_model_len, spec.engine.env)
    return given
