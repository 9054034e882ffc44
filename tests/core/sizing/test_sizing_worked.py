"""Worked examples of public models: contexts of 10,000 tokens, 4 restored at once, 1000 kept, no replicas."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from couchbase_lm_operator.core.engine.engine_layout import EngineLayout
from couchbase_lm_operator.core.model.model_shape import read_shape
from couchbase_lm_operator.core.quantity import GIB, MIB
from couchbase_lm_operator.core.sizing.sizing import Sizing, SizingInputs, size
from tests.core.sizing_truth import PUBLIC_MODELS

_FALCON_7B = {
    "model_type": "falcon",
    "hidden_size": 4544,
    "num_hidden_layers": 32,
    "num_attention_heads": 71,
    "multi_query": True,
    "new_decoder_architecture": False,
    "max_position_embeddings": 2048,
}
_QWEN3_235B = {
    "model_type": "qwen3_moe",
    "hidden_size": 4096,
    "num_hidden_layers": 94,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "max_position_embeddings": 40960,
}
_DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "max_position_embeddings": 163840,
}


def config_of(model: str) -> dict[str, Any]:
    own = {"falcon-7b": _FALCON_7B, "qwen3-235b": _QWEN3_235B, "deepseek-v3": _DEEPSEEK_V3}
    found = own.get(model) or next(row.config for row in PUBLIC_MODELS if row.model == model)
    return {"torch_dtype": "bfloat16", **found}


@dataclass(frozen=True)
class Worked:
    """One example; sizes of groups in MiB of one rank, ``stored_mib`` and ``loaded_mib`` of one context."""

    model: str
    chunk_tokens: int
    groups_mib: tuple[float, ...]
    ranks: int
    documents_per_chunk: int
    chunks: int
    stored_mib: float
    quota_tib: float
    loaded_mib: float
    l1_gib: int
    staging_mib: float
    block_tokens: int = 16
    tokens: int = 10_000
    contexts: int = 1000
    engine: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.model}-{self.tokens}-{self.engine}"


_TOGETHER = {"separate_object_groups": False}
_STEP = {"max_num_batched_tokens": 8192}
_QWEN35, _QWEN35_TP8 = "Qwen/Qwen3.5-27B", "Qwen/Qwen3.5-397B-A17B"
_NEMOTRON, _KIMI, _GEMMA = "nvidia/Nemotron-H-56B-Base-8K", "Kimi-Linear-48B", "Gemma-3-27B"
_LLAMA_70B, _LLAMA_405B = "meta-llama/Meta-Llama-3.1-70B", "meta-llama/Meta-Llama-3.1-405B"


def tensor(ranks: int, **more: Any) -> dict[str, Any]:
    return {"tensor_parallel_size": ranks, **_STEP, **more}


WORKED = (
    Worked("Qwen/Qwen3-0.6B", 256, (28,), 1, 29, 39, 1092, 1.30, 1092, 6, 112),
    Worked("falcon-7b", 256, (2,), 1, 3, 7, 14, 0.02, 14, 1, 8, tokens=1800),
    Worked("Qwen/Qwen3-8B", 256, (36,), 1, 37, 39, 1404, 1.67, 1404, 8, 144),
    Worked("Qwen/Qwen3-8B", 256, (36,), 1, 37, 500, 18_000, 2.15, 18_000, 97, 144, tokens=128_000, contexts=100),
    Worked(_LLAMA_70B, 256, (20,), 4, 84, 39, 3120, 3.72, 3120, 17, 80, engine=tensor(4)),
    Worked(_LLAMA_405B, 256, (15.75,), 8, 136, 39, 4914, 5.86, 4914, 27, 63, engine=tensor(8)),
    Worked("qwen3-235b", 256, (11.75,), 8, 104, 39, 3666, 4.37, 3666, 20, 47, engine=tensor(8)),
    Worked("deepseek-v3", 256, (17.16,), 1, 19, 39, 669.09, 0.80, 669.09, 4, 68.62, block_tokens=64, engine=tensor(8)),
    Worked(
        "deepseek-v3",
        512,
        (34.31,),
        1,
        36,
        250,
        8577.98,
        1.02,
        8577.98,
        47,
        137.25,
        block_tokens=64,
        tokens=128_000,
        contexts=100,
        engine=tensor(8),
    ),
    Worked(
        "deepseek-ai/DeepSeek-V3.2",
        256,
        (11.74,),
        1,
        13,
        39,
        457.68,
        0.55,
        457.68,
        3,
        46.94,
        block_tokens=64,
        engine=tensor(8, kv_cache_dtype="fp8_ds_mla"),
    ),
    Worked("openai/gpt-oss-120b", 256, (2.25, 4.5), 2, 20, 39, 526.5, 0.63, 355.5, 3, 27, engine=tensor(2)),
    Worked(_GEMMA, 256, (52, 10), 2, 128, 39, 4836, 5.76, 1196, 22, 248, engine=tensor(2)),
    Worked(_GEMMA, 256, (62,), 2, 126, 39, 4836, 5.76, 4836, 26, 248, engine=tensor(2, **_TOGETHER)),
    Worked("Command-R-v01", 256, (80,), 4, 324, 39, 12_480, 14.88, 12_480, 68, 320, engine=tensor(4)),
    Worked(_QWEN35, 784, (147, 49), 1, 198, 12, 882, 1.05, 735, 4, 784, block_tokens=784, engine=_STEP),
    Worked(_QWEN35, 784, (147, 49), 1, 198, 12, 2352, 2.80, 735, 4, 784, block_tokens=784),
    Worked(
        _QWEN35, 784, (196,), 1, 197, 12, 2352, 2.80, 2352, 13, 784, block_tokens=784, engine={**_STEP, **_TOGETHER}
    ),
    Worked(
        _QWEN35,
        1568,
        (147, 49),
        1,
        198,
        6,
        588,
        0.70,
        441,
        3,
        784,
        block_tokens=1568,
        engine={**_STEP, "kv_cache_dtype": "fp8"},
    ),
    Worked(
        _QWEN35_TP8,
        528,
        (23.20, 7.73),
        8,
        272,
        18,
        1484.88,
        1.77,
        1299.24,
        7,
        123.75,
        block_tokens=528,
        engine=tensor(8),
    ),
    Worked(_KIMI, 1024, (20.94, 7.88), 2, 62, 9, 225.5, 0.27, 183.62, 1, 115.25, block_tokens=1024, engine=tensor(2)),
    Worked(
        _NEMOTRON,
        4128,
        (108.84, 20.16),
        8,
        1056,
        2,
        2064,
        2.46,
        1193.3,
        7,
        516,
        block_tokens=4128,
        engine=tensor(8),
    ),
    Worked(
        _NEMOTRON,
        2080,
        (54.84, 10.16),
        8,
        544,
        4,
        1202.5,
        1.43,
        763.75,
        5,
        260,
        block_tokens=2080,
        engine=tensor(8, mamba_ssm_cache_dtype="bfloat16"),
    ),
)


def worked_size(row: Worked) -> Sizing:
    inputs = SizingInputs(
        engine=EngineLayout(**{**_STEP, **row.engine}) if row.model != _QWEN35 else EngineLayout(**row.engine),
        max_context_tokens=row.tokens,
        context_tokens=row.tokens,
        contexts=row.contexts,
        is_engine_driven=False,
    )
    return size(read_shape(config_of(row.model), row.model), inputs)


@pytest.mark.parametrize("row", WORKED, ids=str)
def test_worked_examples(row: Worked) -> None:
    sized = worked_size(row)
    assert (sized.block_size_tokens, sized.chunk_size_tokens) == (row.block_tokens, row.chunk_tokens)
    assert [each / MIB for each in sized.object_bytes] == pytest.approx(list(row.groups_mib), abs=0.006)
    assert (sized.ranks, sized.documents_per_chunk) == (row.ranks, row.documents_per_chunk)
    assert sized.chunks_per_context == row.chunks
    assert sized.bytes_per_context / MIB == pytest.approx(row.stored_mib, abs=1)
    assert sized.quota_bytes / (GIB << 10) == pytest.approx(row.quota_tib, rel=0.002, abs=0.006)
    assert sized.loaded_bytes_per_context / MIB == pytest.approx(row.loaded_mib, abs=1)
    assert sized.l1_bytes == row.l1_gib * GIB
    assert sized.staging_bytes / MIB == pytest.approx(row.staging_mib, abs=0.01)
    assert sized.longest_cacheable_tokens == row.chunks * row.chunk_tokens
    assert sized.lookup_keys_per_request == row.chunks * row.ranks * len(row.groups_mib)
    assert sized.chunk_reason.endswith(".")


def test_the_seed_of_these_numbers() -> None:
    row = replace(WORKED[2], tokens=10_288)
    sized = worked_size(row)
    assert sized.chunks_per_context == 40
    assert sized.documents_per_context == 1480
    assert row.tokens - sized.chunks_per_context * sized.chunk_size_tokens == 48
