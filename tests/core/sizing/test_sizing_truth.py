"""Every usable row of what engines were seen to store, to the byte, and to refuse."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from couchbase_lm_operator.core.engine.engine_layout import EngineLayout
from couchbase_lm_operator.core.model.model_families import REAL_RUN
from couchbase_lm_operator.core.model.model_shape import read_shape
from couchbase_lm_operator.core.refusal import RefusedError
from couchbase_lm_operator.core.sizing import sizing
from tests.core.sizing_truth import NOT_STORED, PUBLIC_MODELS, REAL_RUNS, PublicModel, RealRun

COUNTED_OTHERWISE = {
    "l1-ok-64m": "two prompts",
    "l1-tiny-4m": "the first level was too small for this prompt; a shorter one was stored",
    "q3next-544-c544-sep-mbt": "the engine ended in its first steps",
}


def sized(row: RealRun) -> sizing.Sizing:
    inputs = sizing.SizingInputs(
        engine=EngineLayout(platform="cpu", **row.engine),
        context_tokens=row.prompt_tokens,
        chunk_tokens=row.chunk_tokens,
        is_engine_driven=row.transfer == "engine_driven",
    )
    return sizing.size(read_shape(row.config, row.case), inputs)


def on_cuda(row: PublicModel, **changes: Any) -> sizing.Sizing:
    engine = EngineLayout(**{**row.engine, **changes})
    inputs = sizing.SizingInputs(engine=engine, chunk_tokens=row.chunk_tokens, is_engine_driven=False)
    return sizing.size(read_shape(row.config, row.model), inputs)


@pytest.mark.parametrize("row", REAL_RUNS, ids=lambda row: row.case)
def test_objects_have_the_sizes_that_a_real_engine_stored(row: RealRun) -> None:
    found = sized(row)
    first_rank = row.objects[0][0]
    assert found.object_bytes == tuple(size_bytes for rank, _, size_bytes, _ in row.objects if rank == first_rank)
    assert found.block_size_tokens == row.block_tokens
    assert found.evidence == REAL_RUN


@pytest.mark.parametrize("row", REAL_RUNS, ids=lambda row: row.case)
def test_as_many_objects_are_counted_as_a_real_engine_stored(row: RealRun) -> None:
    found = sized(row)
    stored = max(count for _, _, _, count in row.objects)
    if row.case not in COUNTED_OTHERWISE:
        assert found.chunks_per_context == stored
    # a rank of the first stage only was looked at with pipeline parallelism
    ranks = len({rank for rank, _, _, _ in row.objects})
    assert found.ranks == ranks * row.engine.get("pipeline_parallel_size", 1)


@pytest.mark.parametrize("row", PUBLIC_MODELS, ids=lambda row: f"{row.model}-{row.engine}-{row.chunk_tokens}")
def test_public_models_have_the_bytes_that_vllm_registers(row: PublicModel) -> None:
    together, separate = on_cuda(row, separate_object_groups=False), on_cuda(row, separate_object_groups=True)
    assert separate.attention_bytes_per_token_per_rank == row.attention_bytes
    assert separate.state_bytes_per_rank == row.state_bytes
    assert separate.block_size_tokens == row.block_tokens
    assert together.object_bytes == row.together
    assert separate.object_bytes == row.separate
    groups = separate.layout.groups(row.chunk_tokens)
    assert tuple(group.kind for group in groups) == row.separate_kinds


@pytest.mark.parametrize("row", [row for row in NOT_STORED if row.refused], ids=lambda row: row.case)
def test_what_an_engine_or_server_refused_is_refused_before_it_starts(row: RealRun) -> None:
    with pytest.raises(RefusedError) as caught:
        sized(row)
    assert row.refused in caught.value.verdict.message


def test_each_row_is_used_or_listed_with_a_reason() -> None:
    assert len(REAL_RUNS) == 38
    assert len(PUBLIC_MODELS) == 45
    assert len(NOT_STORED) == 30
    kinds = Counter("refused" if row.refused else row.not_runnable and "not runnable" for row in NOT_STORED)
    assert kinds == {"refused": 26, "not runnable": 4}
