"""What vLLM 0.32 and LMCache 0.5.6 were seen to store, for the model families that are sized.

``STORED``: a real engine and server on CPU, prompts of random tokens, sizes of the objects that reached
the second level. ``REGISTERED``: vLLM's own model classes on the meta device, grouped by vLLM, sized by
LMCache's code for CUDA. Only the fields that matter for the cache are kept of each configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Stored:
    """One real run: bytes of every rank's objects, and how many of them the prompt gave."""

    case: str
    config: dict[str, Any]
    chunk_tokens: int
    block_tokens: int
    prompt_tokens: int
    object_bytes: tuple[int, ...]
    object_count: int
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1


@dataclass(frozen=True)
class Registered:
    """One public model: bytes of one rank."""

    model: str
    config: dict[str, Any]
    bytes_per_token_rank: int
    object_bytes: int
    tensor_parallel_size: int = 1
    kv_cache_dtype: str | None = None
    chunk_tokens: int = 256
    block_tokens: int = 16


def _config(model_type: str, hidden: int, layers: int, heads: int, kv_heads: int | None, **more: Any) -> dict[str, Any]:
    fields = {
        "model_type": model_type,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16",
        **more,
    }
    return fields if kv_heads is None else {**fields, "num_key_value_heads": kv_heads}


STORED = (
    Stored("qwen3-gqa-c64", _config("qwen3", 128, 4, 4, 2, head_dim=64), 64, 32, 1000, (131072,), 15),
    Stored("qwen3-gqa-c64-ld", _config("qwen3", 128, 4, 4, 2, head_dim=64), 64, 32, 1000, (131072,), 15),
    Stored("llama-mha", _config("llama", 256, 3, 4, 4), 64, 32, 1000, (196608,), 15),
    Stored("llama-mqa", _config("llama", 256, 3, 4, 1), 64, 32, 1000, (49152,), 15),
    Stored(
        "mistral-sw128-c256-ld",
        _config("mistral", 256, 4, 4, 2, head_dim=64, sliding_window=128),
        256,
        32,
        1000,
        (524288,),
        3,
    ),
    Stored(
        "mistral-sw128-c256-ld-sep",
        _config("mistral", 256, 4, 4, 2, head_dim=64, sliding_window=128),
        256,
        32,
        1000,
        (524288,),
        3,
    ),
    Stored("qwen3-chunk-96", _config("qwen3", 128, 4, 4, 2, head_dim=64), 96, 32, 1000, (196608,), 10),
    Stored(
        "qwen3-tp2",
        _config("qwen3", 128, 4, 4, 2, head_dim=64),
        64,
        32,
        1000,
        (65536, 65536),
        15,
        tensor_parallel_size=2,
    ),
    Stored(
        "qwen3-tp2-kv1",
        _config("qwen3", 128, 4, 4, 1, head_dim=64),
        64,
        32,
        1000,
        (65536, 65536),
        15,
        tensor_parallel_size=2,
    ),
    Stored(
        "falcon-mqa",
        _config("falcon", 256, 3, 4, None, new_decoder_architecture=False, multi_query=True),
        64,
        32,
        1000,
        (49152,),
        15,
    ),
    Stored("qwen3-savedecode", _config("qwen3", 128, 4, 4, 2, head_dim=64), 32, 32, 120, (65536,), 3),
    Stored("qwen3-pickle-noshm", _config("qwen3", 128, 4, 4, 2, head_dim=64), 64, 32, 1000, (131072,), 15),
    Stored(
        "qwen3-pp2-b", _config("qwen3", 128, 4, 4, 2, head_dim=64), 64, 32, 1000, (65536,), 15, pipeline_parallel_size=2
    ),
    Stored(
        "qwen3-tp2-pp1-kv2",
        _config("qwen3", 128, 4, 4, 2, head_dim=64),
        128,
        64,
        1000,
        (131072, 131072),
        7,
        tensor_parallel_size=2,
    ),
)

REGISTERED = (
    Registered(
        "Qwen/Qwen3-0.6B",
        _config("qwen3", 1024, 28, 16, 8, max_position_embeddings=40960, head_dim=128),
        114688,
        29360128,
    ),
    Registered(
        "Qwen/Qwen3-32B",
        _config("qwen3", 5120, 64, 64, 8, max_position_embeddings=40960, head_dim=128),
        262144,
        67108864,
    ),
    Registered(
        "Qwen/Qwen3-8B",
        _config("qwen3", 4096, 36, 32, 8, max_position_embeddings=40960, head_dim=128),
        147456,
        37748736,
    ),
    Registered(
        "Qwen/Qwen3-8B",
        _config("qwen3", 4096, 36, 32, 8, max_position_embeddings=40960, head_dim=128),
        73728,
        18874368,
        kv_cache_dtype="fp8",
    ),
    Registered(
        "Command-R-v01", _config("cohere", 8192, 40, 64, 64, max_position_embeddings=131072), 1310720, 335544320
    ),
    Registered(
        "Falcon-40B",
        _config(
            "falcon",
            8192,
            60,
            128,
            None,
            max_position_embeddings=131072,
            num_kv_heads=8,
            new_decoder_architecture=True,
            multi_query=True,
        ),
        122880,
        31457280,
    ),
    Registered(
        "Mistral-Small-3",
        _config("mistral", 5120, 40, 32, 8, max_position_embeddings=131072, head_dim=128),
        163840,
        41943040,
    ),
    Registered("Phi-4", _config("phi3", 5120, 40, 40, 10, max_position_embeddings=131072), 204800, 52428800),
    Registered("Qwen2.5-72B", _config("qwen2", 8192, 80, 64, 8, max_position_embeddings=131072), 327680, 83886080),
    Registered(
        "StarCoder2-15B",
        _config("starcoder2", 6144, 40, 48, 4, max_position_embeddings=131072, sliding_window=4096),
        81920,
        20971520,
    ),
    Registered(
        "StarCoder2-7B",
        _config("starcoder2", 4608, 32, 36, 4, max_position_embeddings=131072, sliding_window=4096),
        65536,
        16777216,
    ),
    Registered(
        "qwen2.5-7b-instruct",
        _config(
            "qwen2", 3584, 28, 28, 4, max_position_embeddings=32768, use_sliding_window=False, sliding_window=131072
        ),
        57344,
        14680064,
    ),
    Registered("yi-34b", _config("llama", 7168, 60, 56, 8, max_position_embeddings=4096), 245760, 62914560),
    Registered(
        "meta-llama/Meta-Llama-3.1-405B",
        _config("llama", 16384, 126, 128, 8, max_position_embeddings=131072),
        64512,
        16515072,
        tensor_parallel_size=8,
    ),
    Registered(
        "meta-llama/Meta-Llama-3.1-70B",
        _config("llama", 8192, 80, 64, 8, max_position_embeddings=131072),
        327680,
        83886080,
    ),
    Registered(
        "meta-llama/Meta-Llama-3.1-8B",
        _config("llama", 4096, 32, 32, 8, max_position_embeddings=131072),
        131072,
        33554432,
    ),
    Registered(
        "Qwen/Qwen3-VL-8B-Instruct",
        _config("qwen3", 4096, 36, 32, 8, max_position_embeddings=262144, head_dim=128),
        147456,
        37748736,
    ),
)
