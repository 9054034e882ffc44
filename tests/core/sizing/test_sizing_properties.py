"""What holds for every model and every engine, whatever the numbers."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from couchbase_lm_operator.core.engine.engine_layout import EngineLayout
from couchbase_lm_operator.core.model.model_families import FAMILIES
from couchbase_lm_operator.core.model.model_shape import read_shape
from couchbase_lm_operator.core.refusal import RefusedError
from couchbase_lm_operator.core.sizing.kv_layout import KvLayout, layout
from couchbase_lm_operator.core.sizing.layout_fingerprint import layout_fingerprint
from couchbase_lm_operator.core.sizing.sizing import Sizing, SizingInputs, size
from tests.core.sizing_truth import PUBLIC_MODELS, REAL_RUNS

Config = dict[str, Any]

MODELS: list[Config] = list(
    {json.dumps(row.config, sort_keys=True): row.config for row in (*PUBLIC_MODELS, *REAL_RUNS)}.values()
)
_VERSIONS = {"vllm": "0.32.0", "lmcache": "0.5.6"}
_LAYER_COUNTS = ("num_hidden_layers", "num_layers", "num_kv_shared_layers")
# of every sort that JSON knows, and of sizes that nobody means
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.integers(-2, 300)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["full_attention", "sliding_attention", "linear_attention", "mamba", "fp8", "bfloat16"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
_NAMES = st.sampled_from(sorted({"text_config", "quantization_config"}.union(*MODELS)))

models = st.sampled_from(MODELS)
engines = st.builds(
    EngineLayout,
    platform=st.sampled_from(["cuda", "cuda", "cpu"]),
    tensor_parallel_size=st.sampled_from([1, 1, 2, 4, 8]),
    pipeline_parallel_size=st.sampled_from([1, 1, 1, 2, 3]),
    decode_context_parallel_size=st.sampled_from([1, 1, 1, 2]),
    kv_cache_dtype=st.sampled_from(["auto", "auto", "bfloat16", "fp8", "fp8_e5m2"]),
    dtype=st.sampled_from([None, None, "float16", "float32"]),
    block_size=st.sampled_from([None, None, 16, 32, 64, 128]),
    separate_object_groups=st.sampled_from([None, None, True, False]),
    hybrid_kv_cache=st.sampled_from([True, True, True, False]),
    mamba_ssm_cache_dtype=st.sampled_from([None, None, "bfloat16", "float32"]),
    max_num_batched_tokens=st.sampled_from([None, None, 2048, 16384]),
)
inputs = st.builds(
    SizingInputs,
    engine=engines,
    context_tokens=st.sampled_from([None, 1, 500, 10_000, 1_000_000]),
    contexts=st.integers(1, 10_000),
    bucket_replicas=st.integers(0, 3),
    data_nodes=st.integers(4, 9),
)


def _told(config: Config) -> str:
    return f"{config['model_type']}-{config['hidden_size']}"


def layout_or_none(config: Config, engine: EngineLayout) -> KvLayout | None:
    try:
        return layout(read_shape(config, "config.json"), engine)
    except RefusedError:
        return None


def doubled(config: Config) -> Config:
    """Return the same model twice over: every layer, and every list that names one for each layer."""
    layers = config["num_hidden_layers"]
    twice = {name: 2 * value if name in _LAYER_COUNTS else value for name, value in config.items()}
    for name, value in config.items():
        if isinstance(value, list | str) and len(value) == layers:
            twice[name] = value + value
    kinds = config.get("linear_attn_config")
    if kinds is not None:
        both = {
            name: [*kinds[name], *(index + layers for index in kinds[name])]
            for name in ("full_attn_layers", "kda_layers")
        }
        twice["linear_attn_config"] = {**kinds, **both}
    return twice


# Where indexers are in every fourth layer after the third, twice the layers have not quite twice the indexers.
@pytest.mark.parametrize("config", [each for each in MODELS if "index_topk_freq" not in each], ids=_told)
def test_twice_the_layers_are_twice_the_bytes(config: Config) -> None:
    once, twice = (layout(read_shape(each, "config.json"), EngineLayout()) for each in (config, doubled(config)))
    assert twice.attention_bytes_per_token_per_rank == 2 * once.attention_bytes_per_token_per_rank
    assert twice.state_bytes_per_rank == 2 * once.state_bytes_per_rank
    assert twice.block_tokens == once.block_tokens


@settings(deadline=None)
@given(config=models, ranks=st.sampled_from([2, 4, 8, 16]))
def test_more_ranks_never_hold_more_each_and_never_less_together(config: Config, ranks: int) -> None:
    alone = layout(read_shape(config, "config.json"), EngineLayout())
    split = layout_or_none(config, EngineLayout(tensor_parallel_size=ranks))
    assume(split is not None)
    assert split is not None
    assert split.attention_bytes_per_token_per_rank <= alone.attention_bytes_per_token_per_rank
    assert split.state_bytes_per_rank <= alone.state_bytes_per_rank
    assert split.attention_bytes_per_token >= alone.attention_bytes_per_token


@settings(deadline=None, max_examples=300)
@given(config=models, inputs=inputs)
def test_sizes_fit_together(config: Config, inputs: SizingInputs) -> None:
    try:
        sized = size(read_shape(config, "config.json"), inputs)
    except RefusedError:
        assume(False)
    assert sized.chunk_size_tokens % sized.block_size_tokens == 0
    assert sized.quota_bytes >= (1 + inputs.bucket_replicas) * inputs.contexts * sized.bytes_per_context
    assert sized.quota_bytes == inputs.data_nodes * sized.quota_per_node_bytes
    assert sized.l1_wanted_bytes >= sized.loaded_bytes_per_context
    _check_objects(sized)


def _check_objects(sized: Sizing) -> None:
    """One object's documents, keys and bytes tell of the same thing."""
    groups = len(sized.object_bytes)
    assert min(sized.object_bytes) > 0
    assert sized.lookup_keys_per_request == sized.chunks_per_context * groups * sized.ranks
    assert sized.bytes_per_context <= sized.chunks_per_context * sized.ranks * sum(sized.object_bytes)
    assert sized.documents_per_chunk >= 2 * groups * sized.ranks
    assert sized.loaded_bytes_per_context <= sized.chunks_per_context * sized.ranks * sum(sized.object_bytes)


@settings(deadline=None, max_examples=500)
@given(config=models, changes=st.dictionaries(_NAMES | st.text(max_size=8), _VALUES, max_size=4), engine=engines)
def test_a_broken_model_is_refused_or_sized_and_never_a_crash(
    config: Config, changes: Config, engine: EngineLayout
) -> None:
    _size_or_refuse({**deepcopy(config), **changes}, engine)


@settings(deadline=None, max_examples=300)
@given(
    config=st.dictionaries(st.text(max_size=8) | _NAMES, _VALUES, max_size=12),
    model_type=st.sampled_from(sorted(FAMILIES)),
)
def test_any_mapping_is_refused_or_sized_and_never_a_crash(config: Config, model_type: str) -> None:
    _size_or_refuse({**config, "model_type": model_type}, EngineLayout())


def _size_or_refuse(config: Config, engine: EngineLayout) -> None:
    try:
        sized = size(read_shape(config, "config.json"), SizingInputs(engine=engine))
    except RefusedError as refused:
        message = refused.verdict.message
        assert message
        assert "\n" not in message
        assert len(message) < 1500
    else:
        assert min(sized.object_bytes) > 0


@pytest.mark.parametrize("config", MODELS, ids=_told)
def test_a_type_that_is_almost_a_known_one_gets_no_number(config: Config) -> None:
    for model_type in (f"{config['model_type']}_2", config["model_type"].upper(), f" {config['model_type']}"):
        assert layout_or_none({**config, "model_type": model_type}, EngineLayout()) is None


@settings(deadline=None, max_examples=300)
@given(config=models, other=models, one=engines, two=engines, chunks=st.tuples(*[st.sampled_from([1, 2, 4])] * 2))
def test_one_fingerprint_means_the_same_bytes_on_every_rank(
    config: Config, other: Config, one: EngineLayout, two: EngineLayout, chunks: tuple[int, int]
) -> None:
    """Among engines whose keys have the same world size, for that is part of every key."""
    for second in (config, other):
        first_layout, second_layout = layout_or_none(config, one), layout_or_none(second, two)
        if first_layout is None or second_layout is None or first_layout.ranks != second_layout.ranks:
            continue
        pairs = ((config, one, first_layout, chunks[0]), (second, two, second_layout, chunks[1]))
        told = [
            layout_fingerprint(read_shape(each, "config.json"), engine, blocks * kv.block_tokens, _VERSIONS)
            for each, engine, kv, blocks in pairs
        ]
        stored = [_bytes_of_ranks(kv, blocks * kv.block_tokens) for _, _, kv, blocks in pairs]
        assert told[0] != told[1] or stored[0] == stored[1]


def _bytes_of_ranks(kv: KvLayout, chunk_tokens: int) -> tuple[int, list[list[int]]]:
    stages = kv.stage_groups(chunk_tokens)
    return chunk_tokens, [[group.object_bytes(chunk_tokens) for group in stage] for stage in stages]
