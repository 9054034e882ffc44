"""A vLLM platform that decides about KV caches as an NVIDIA GPU would, on a machine that has none.

vLLM's CPU platform answers three questions differently: which attention backend a layer gets, which block
sizes that backend takes, and how a hybrid's block is aligned. Here they are answered with the classes that
CUDA uses (FlashAttention, FlashMLA, sparse FlashMLA) and with the code of vLLM's base platform. Kernels are
never called: where a backend would build one, a stand-in takes its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import vllm.platforms
from vllm.platforms.cpu import CpuPlatform
from vllm.platforms.interface import Platform

from tests.vllm_specs import stand_ins

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.attention.backends.registry import AttentionBackendEnum
    from vllm.v1.attention.selector import AttentionSelectorConfig


class CudaShapedPlatform(CpuPlatform):
    """The CPU platform with CUDA's decisions about layout."""

    @classmethod
    def get_attn_backend_cls(
        cls,
        selected_backend: AttentionBackendEnum | None,
        attn_selector_config: AttentionSelectorConfig,
        num_heads: int | None = None,
    ) -> str:
        """Return the backend's path; what was asked for is not looked at, there is one per kind."""
        del selected_backend, num_heads
        if attn_selector_config.use_sparse:
            return f"{_BACKENDS}.SparseFlashMla"
        return f"{_BACKENDS}.FlashMla" if attn_selector_config.use_mla else f"{_BACKENDS}.FlashAttention"

    @classmethod
    def check_and_update_config(cls, vllm_config: VllmConfig) -> None:
        """Set nothing that CUDA does not set; the CPU platform would change block size and state type."""
        vllm_config.parallel_config.worker_cls = "vllm.v1.worker.cpu_worker.CPUWorker"

    @classmethod
    def update_block_size_for_backend(cls, vllm_config: VllmConfig) -> None:
        """Align blocks as the base platform does, which CUDA does not override."""
        Platform.update_block_size_for_backend.__func__(cls, vllm_config)

    @classmethod
    def support_hybrid_kv_cache(cls) -> bool:
        """As on CUDA."""
        return True

    @classmethod
    def verify_quantization(cls, quant: str) -> None:
        """Accept any: weights are never loaded."""


class _ExpertsPlatform(CudaShapedPlatform):
    def is_cuda_alike(self) -> bool:
        """Let experts without gates be built, which vLLM refuses on CPUs."""
        return True


_BACKENDS = f"{__name__.rpartition('.')[0]}.cuda_backends"


def install() -> None:
    """Make this the platform of the process; to be called before anything else of vLLM is imported."""
    platform: Any = CudaShapedPlatform()
    vllm.platforms.current_platform = platform


def allow_all_models() -> None:
    """Take away what keeps some model classes from being built without a GPU; none of it is about the cache."""
    from vllm import triton_utils
    from vllm.model_executor.layers.fused_moe import config, unquantized_fused_moe_method

    config.current_platform = _ExpertsPlatform()
    backend = unquantized_fused_moe_method.UnquantizedMoeBackend.CPU
    unquantized_fused_moe_method.select_unquantized_moe_backend = lambda **_arguments: (backend, None)
    triton_utils.triton.set_allocator = lambda *_arguments: None
    torch.cuda.Stream = torch.cuda.Event = stand_ins.stand_in("Stream")
