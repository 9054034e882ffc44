"""Whole answers for public models, worked out by hand beforehand: 1000 contexts of 10,000 tokens, no replicas."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from couchbase_lm_operator.core.engine.engine_layout import EngineLayout
from couchbase_lm_operator.core.sizing.estimate import Question, estimate
from e2e.public_models.models import PUBLIC_MODELS

CONFIGS = {model.name: model.config for model in PUBLIC_MODELS}
TOKENS = 10_000
MIB, GIB, TIB = 1 << 20, 1 << 30, 1 << 40


@dataclass(frozen=True)
class Worked:
    """Objects in MiB in LMCache's order; stored and loaded contexts in MiB, the quota in TiB, L1 in GiB."""

    model: str
    engine: EngineLayout
    chunk_tokens: int
    objects: tuple[float, ...]
    ranks: int
    documents_per_chunk: int
    documents: int
    stored: float
    quota: float
    loaded: float
    l1: int


def ranks(size: int, **more: object) -> EngineLayout:
    return EngineLayout(tensor_parallel_size=size, **more)  # type: ignore[arg-type]


WORKED = (
    Worked("Qwen3-0.6B", ranks(1), 256, (28,), 1, 29, 1131, 1092, 1.30, 1092, 6),
    Worked("Qwen3-8B", ranks(1), 256, (36,), 1, 37, 1443, 1404, 1.67, 1404, 8),
    Worked("Llama-3.1-70B", ranks(4), 256, (20,), 4, 84, 3276, 3120, 3.72, 3120, 17),
    Worked("Llama-3.1-405B", ranks(8), 256, (15.75,), 8, 136, 5304, 4914, 5.86, 4914, 27),
    Worked("Qwen3-235B-A22B", ranks(8), 256, (11.75,), 8, 104, 4056, 3666, 4.37, 3666, 20),
    Worked("DeepSeek-V3 / R1", ranks(8), 256, (17.16,), 1, 19, 741, 669.09, 0.80, 669.09, 4),
    Worked(
        *("DeepSeek-V3.2", ranks(8, kv_cache_dtype="fp8_ds_mla"), 256),
        *((11.74,), 1, 13, 507, 457.68, 0.55, 457.68, 3),
    ),
    Worked("GPT-OSS-120B", ranks(2), 256, (2.25, 4.5), 2, 20, 780, 526.5, 0.63, 355.5, 3),
    Worked("Gemma-3-27B", ranks(2), 256, (52, 10), 2, 128, 4992, 4836, 5.76, 1196, 22),
    Worked("Gemma-3-27B", ranks(2, separate_object_groups=False), 256, (62,), 2, 126, 4914, 4836, 5.76, 4836, 26),
    Worked("Command-R v01", ranks(4), 256, (80,), 4, 324, 12636, 12480, 14.88, 12480, 68),
    Worked("Qwen3.5-27B", ranks(1), 784, (147, 49), 1, 198, 2376, 2352, 2.80, 735, 4),
    Worked("Qwen3.5-27B", ranks(1, separate_object_groups=False), 784, (196,), 1, 197, 2364, 2352, 2.80, 2352, 13),
)


@pytest.mark.parametrize("worked", WORKED, ids=lambda each: f"{each.model}, {each.engine.tensor_parallel_size} ranks")
def test_worked_example(worked: Worked) -> None:
    question = Question(worked.engine, max_model_len=TOKENS, contexts=1000, context_tokens=TOKENS)
    found = estimate(CONFIGS[worked.model], worked.model, question, {}).sizing
    assert found.chunk_size_tokens == worked.chunk_tokens
    assert [each / MIB for each in found.object_bytes] == pytest.approx(worked.objects, abs=0.005)
    assert (found.ranks, found.documents_per_chunk) == (worked.ranks, worked.documents_per_chunk)
    assert found.documents_per_context == worked.documents
    assert found.bytes_per_context / MIB == pytest.approx(worked.stored, abs=0.005)
    assert found.loaded_bytes_per_context / MIB == pytest.approx(worked.loaded, abs=0.005)
    # rounded to whole MiB, and 0.3 KiB for each document
    assert found.quota_bytes / TIB == pytest.approx(worked.quota, abs=0.01)
    assert found.l1_bytes == worked.l1 * GIB
