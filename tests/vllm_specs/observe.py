"""What vLLM and LMCache themselves make of a config.json: KV cache specs, groups and object sizes.

The path is the engine's own, without weights and without a GPU: vLLM's model class is built on the meta
device, its layers are asked for their KV cache specs, vLLM groups and lays them out, LMCache's connector
turns them into its groups, and LMCache's staging buffer (which has the size of the objects) is asked for
sizes. Runs in the engine's environment only.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from lmcache.integration.vllm.kv_cache_group_edits import apply_kv_cache_group_edits
from lmcache.integration.vllm.kv_cache_groups import create_engine_group_infos_from_vllm
from lmcache.integration.vllm.lmcache_mp_connector import build_parallel_strategy_from_vllm_config
from lmcache.integration.vllm.utils import vllm_layout_hints
from lmcache.utils import EngineType
from lmcache.v1.gpu_connector.utils import normalize_and_discover_per_layer_formats
from lmcache.v1.kv_layer_groups import KernelGroupInfo, KVLayerGroupsManager
from lmcache.v1.multiprocess.group_view import engine_group_layer_indices
from lmcache.v1.platform.devices.cuda.cache_context import _TempGPUBuffer
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.config.kv_transfer import KVTransferConfig
from vllm.distributed import parallel_state
from vllm.distributed.kv_transfer.kv_connector.utils import get_current_attn_backends
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.model_executor.models import registry
from vllm.platforms import current_platform
from vllm.utils.torch_utils import set_default_torch_dtype
from vllm.v1.attention.backends.utils import get_supported_kv_cache_layouts, resolve_kv_cache_layout
from vllm.v1.core.kv_cache_utils import get_kv_cache_configs
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
from vllm.v1.kv_cache_interface import MambaSpec, UniformTypeKVCacheSpecs
from vllm.v1.worker.gpu.attn_utils import get_kv_cache_spec, get_shared_kv_cache_layers
from vllm.v1.worker.utils import AttentionGroup, allocate_kv_cache, prepare_kernel_block_sizes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheSpec

# Nothing is allocated on the meta device: plenty of blocks for any context, and of memory for them.
_BLOCKS = 1 << 22
_CACHE_BYTES = 1 << 60
_ENGINE_ARGUMENTS = ("kv_cache_dtype", "dtype", "block_size", "mamba_ssm_cache_dtype", "mamba_cache_dtype")


def observe(config: Mapping[str, Any], engine: Mapping[str, Any], chunks: Sequence[int], device: str) -> dict[str, Any]:
    """Return the numbers of one rank as JSON values.

    ``engine`` has fields of ``EngineLayout``; ``device`` is ``cpu`` for model classes that compute while they
    are built, else ``meta``.

    Raises:
        Exception: whatever vLLM or LMCache raise for a model that they cannot take.
    """
    group = parallel_state.get_tp_group()
    group.world_size = engine.get("tensor_parallel_size", 1)
    try:
        with _model_folder(config) as folder:
            return _observe(_vllm_config(folder, engine), chunks, device)
    finally:
        group.world_size = 1


def _observe(vllm_config: VllmConfig, chunks: Sequence[int], device: str) -> dict[str, Any]:
    with set_current_vllm_config(vllm_config):
        with set_default_torch_dtype(vllm_config.model_config.dtype), torch.device(device):
            model = initialize_model(vllm_config)
        current_platform.update_block_size_for_backend(vllm_config)
        register_all_kvcache_specs(vllm_config)
        specs = get_kv_cache_spec(vllm_config)
        layouts = [layout.name for layout in get_supported_kv_cache_layouts(get_current_attn_backends(vllm_config))]
        layout = resolve_kv_cache_layout(vllm_config, [layouts], specs.values())
        (cache,) = get_kv_cache_configs(vllm_config, [specs], [_CACHE_BYTES])
        cache.kv_cache_layout = vllm_config.cache_config.kv_cache_layout
        tensors = allocate_kv_cache(cache, torch.device("meta"), layout, _kernel_block_sizes(vllm_config, cache))
        for name, target in get_shared_kv_cache_layers(vllm_config).items():
            tensors[name] = tensors[target]
        managers = _Managers(vllm_config, cache, tensors)
    return {
        "model_class": type(model).__name__,
        "ranks": build_parallel_strategy_from_vllm_config(vllm_config, n_servers=1).kv_world_size,
        "specs": _summary(cache),
        "state_bytes": sum(_state_bytes(spec) for _, spec in _layers(cache)),
        **managers.numbers(chunks),
    }


class _Managers:
    """LMCache's view of one rank's tensors, for any chunk size."""

    def __init__(self, vllm_config: VllmConfig, cache: KVCacheConfig, tensors: Mapping[str, torch.Tensor]) -> None:
        hints = vllm_layout_hints(vllm_config)
        edited = apply_kv_cache_group_edits(cache, tensors, layout_hints=hints)
        parallel = vllm_config.parallel_config
        self._infos = create_engine_group_infos_from_vllm(
            cache, edited, layout_hints=hints, dcp_size=parallel.decode_context_parallel_size
        )
        self._tensors, self._formats = normalize_and_discover_per_layer_formats(
            list(edited.values()), engine_group_layer_indices(self._infos), EngineType.VLLM, hints
        )

    def numbers(self, chunks: Sequence[int]) -> dict[str, Any]:
        """Return what a token, a state and an object take; ``chunks`` are added to two of our choice."""
        block = math.lcm(*(info.tokens_per_block for info in self._infos))
        usual = block * -(-256 // block)
        groups = self._manager(block, separate=False).kernel_groups
        return {
            "block_tokens": block,
            "attention_bytes_per_token": sum(
                _block_bytes(group) // group.tokens_per_block for group in groups if not group.recurrent_state
            ),
            "objects": {str(chunk): self._objects(chunk) for chunk in sorted({block, usual, 4 * usual, *chunks})},
        }

    def _objects(self, chunk_tokens: int) -> dict[str, list[int] | str]:
        return {
            "single": self._sizes(chunk_tokens, separate=False),
            "separate": self._sizes(chunk_tokens, separate=True),
        }

    def _sizes(self, chunk_tokens: int, *, separate: bool) -> list[int] | str:
        """Return the bytes of each object group, or LMCache's refusal."""
        try:
            manager = self._manager(chunk_tokens, separate=separate)
        except ValueError as error:
            return str(error)
        staging = _TempGPUBuffer(manager, chunk_tokens, torch.device("meta"), max_batch_size=1)
        return [staging.get_temp_object_group_buffer(0, index).numel() for index in range(manager.num_object_groups)]

    def _manager(self, chunk_tokens: int, *, separate: bool) -> KVLayerGroupsManager:
        return KVLayerGroupsManager(
            self._tensors,
            engine_kv_formats=self._formats,
            engine_group_infos=self._infos,
            lmcache_tokens_per_chunk=chunk_tokens,
            separate_object_groups=separate,
        )


def _block_bytes(group: KernelGroupInfo) -> int:
    slots = group.num_layers * group.slots_per_block
    return group.shape_desc.kv_size * slots * group.hidden_dim_size * group.dtype.itemsize


def _vllm_config(folder: Path, engine: Mapping[str, Any]) -> VllmConfig:
    """Return what ``vllm serve`` would make of our flags, on one process."""
    arguments: dict[str, Any] = {
        "model": str(folder),
        "skip_tokenizer_init": True,
        "load_format": "dummy",
        "enforce_eager": True,
        "enable_prefix_caching": True,
        "mamba_cache_mode": "align",
        "max_num_batched_tokens": 65536,
        "num_gpu_blocks_override": _BLOCKS,
        "kv_transfer_config": KVTransferConfig(kv_connector="LMCacheMPConnector", kv_role="kv_both"),
        **{name: value for name, value in engine.items() if name in _ENGINE_ARGUMENTS},
        "disable_hybrid_kv_cache_manager": None if engine.get("hybrid_kv_cache", True) else True,
    }
    vllm_config = EngineArgs(**arguments).create_engine_config()
    # Set afterwards: vLLM would look for that many devices.
    parallel = vllm_config.parallel_config
    parallel.tensor_parallel_size = parallel.world_size = engine.get("tensor_parallel_size", 1)
    return vllm_config


def _kernel_block_sizes(vllm_config: VllmConfig, cache: KVCacheConfig) -> list[int]:
    layers = vllm_config.compilation_config.static_forward_context
    groups = []
    for index, group in enumerate(cache.kv_cache_groups):
        found = {(layers[name].get_attn_backend(), _spec_of(group, name)) for name in group.layer_names}
        groups.append([AttentionGroup(backend, [], spec, index) for backend, spec in found])
    return prepare_kernel_block_sizes(cache, groups)


def _spec_of(group: Any, name: str) -> KVCacheSpec:
    spec = group.kv_cache_spec
    return spec.kv_cache_specs[name] if isinstance(spec, UniformTypeKVCacheSpecs) else spec


def _layers(cache: KVCacheConfig) -> Iterator[tuple[str, KVCacheSpec]]:
    return ((name, _spec_of(group, name)) for group in cache.kv_cache_groups for name in group.layer_names)


def _state_bytes(spec: KVCacheSpec) -> int:
    """Return the bytes of a recurrent layer's state without the padding of its page, 0 for attention."""
    return replace(spec, page_size_padded=None).page_size_bytes if isinstance(spec, MambaSpec) else 0


def _summary(cache: KVCacheConfig) -> list[dict[str, Any]]:
    """Return the layers of each kind, for people who look for the cause of a difference."""
    counted: Counter[tuple[tuple[str, Any], ...]] = Counter()
    for _, spec in _layers(cache):
        facts = {
            "kind": type(spec).__name__,
            "block": spec.block_size,
            "page_bytes": spec.page_size_bytes,
            "kv_heads": getattr(spec, "num_kv_heads", None),
            "head": getattr(spec, "head_size", None),
            "head_v": getattr(spec, "head_size_v", None),
            "window": getattr(spec, "sliding_window", None) or getattr(spec, "attention_chunk_size", None),
            "dtype": str(getattr(spec, "dtype", None) or getattr(spec, "dtypes", None)).replace("torch.", ""),
            "shapes": str(getattr(spec, "shapes", "")),
        }
        counted[tuple((key, value) for key, value in facts.items() if value not in (None, ""))] += 1
    return [{"layers": layers, **dict(facts)} for facts, layers in counted.items()]


@contextmanager
def _model_folder(config: Mapping[str, Any]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.json").write_text(json.dumps(config))
        yield folder


def prepare_process() -> None:
    """Make the process the only rank, and let vLLM look at model classes here and not in a new process each."""
    with tempfile.TemporaryDirectory() as folder, set_current_vllm_config(VllmConfig()):
        parallel_state.init_distributed_environment(
            world_size=1, rank=0, local_rank=0, distributed_init_method=f"file://{folder}/store", backend="gloo"
        )
        parallel_state.initialize_model_parallel(1, 1)

    def inspect_here(model: Any) -> Any:
        return registry._ModelInfo.from_model_cls(model.load_model_cls())

    registry._LazyRegisteredModel.inspect_model_cls = inspect_here
