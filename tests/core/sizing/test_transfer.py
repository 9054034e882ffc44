"""Engine-driven transfer carries layers that are cached alike: others are made alike, or refused beforehand."""

from __future__ import annotations

from typing import Any

import pytest

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.checks import check
from couchbase_lm_operator.core.verdict import Proceed, Refuse
from tests.core.planning import RELEASE, config_of, observed_with, plan_of, spec_of
from tests.core.tiny_models import ALL_SLIDING, CHUNKED_LOCAL, DENSE, LATENT, RECURRENT, SLIDING, SPARSE

_LARGE_GLOBAL_HEADS = {
    **SLIDING,
    "model_type": "gemma4_text",
    "architectures": ["Gemma4ForCausalLM"],
    "global_head_dim": 128,
}
CPU = {"accelerator": {"vendor": "CPU"}}


def _verdict(content: dict[str, Any], **changes: Any) -> Any:
    return check(spec_of(**changes), observed_with(config_of(content)), RELEASE)


@pytest.mark.parametrize("vendor", ["CPU", "NVIDIA"])
@pytest.mark.parametrize(
    ("content", "told"),
    [
        (RECURRENT, "model_type qwen3_next: it has layers with recurrent states beside attention"),
        (_LARGE_GLOBAL_HEADS, "heads of different numbers or sizes"),
    ],
)
def test_several_transfer_groups_are_refused_before_a_pod_starts(
    content: dict[str, Any], told: str, vendor: str
) -> None:
    said = _verdict(content, accelerator={"vendor": vendor})
    assert isinstance(said, Refuse)
    assert said.reason == Reason.TRANSFER_NOT_SUPPORTED
    assert told in said.message
    assert "does not support multiple KV transfer groups" in said.message
    assert "spec.model.id" in said.message


def test_an_indexer_beside_latent_attention_is_a_second_group() -> None:
    said = _verdict(SPARSE)
    assert isinstance(said, Refuse)
    assert (said.reason, "caches of different kinds" in said.message) == (Reason.TRANSFER_NOT_SUPPORTED, True)


@pytest.mark.parametrize("changes", [CPU, {}])
def test_a_mix_of_windows_becomes_one_group_that_is_kept_in_full(changes: dict[str, Any]) -> None:
    plan = plan_of(spec_of(**changes, cache={"chunkSize": 128}), SLIDING)
    # six layers, keys and values of two heads of 64 elements of two bytes
    assert plan.sizing.object_bytes == (128 * 6 * 2 * 2 * 64 * 2,)
    assert not plan.values.layout.hybrid_kv_cache
    chosen = {choice.field: choice for choice in plan.choices}
    assert "--disable-hybrid-kv-cache-manager" in chosen["cache.transfer"].reason
    assert plan.transfer_reason == chosen["cache.transfer"].reason


@pytest.mark.parametrize(
    ("content", "object_bytes"),
    [
        (SLIDING, 1_572_864),
        (ALL_SLIDING, 1_048_576),
        (CHUNKED_LOCAL, 1_048_576),
        ({**LATENT, "num_nextn_predict_layers": 0}, 1_769_472),
    ],
)
def test_the_bytes_are_those_of_real_engines_with_the_rendered_flags(
    content: dict[str, Any], object_bytes: int
) -> None:
    # a server and an engine with the arguments of these pods stored 4 objects of this size for 2100 tokens
    sizing = plan_of(spec_of(**CPU), content).sizing
    assert (sizing.chunk_size_tokens, sizing.object_bytes) == (512, (object_bytes,))


def test_windows_of_all_layers_are_stored_whole_on_every_device() -> None:
    plan = plan_of(spec_of(cache={"chunkSize": 512}), ALL_SLIDING)
    assert plan.values.layout.hybrid_kv_cache
    assert plan.sizing.object_bytes == (1_048_576,)


@pytest.mark.parametrize("content", [DENSE, LATENT])
def test_layers_that_are_cached_alike_need_nothing(content: dict[str, Any]) -> None:
    plan = plan_of(spec_of(), content)
    assert plan.values.layout.hybrid_kv_cache
    assert plan.sizing.layout.required_flags == {"vllm": {}, "lmcache": {}}
    assert _verdict(content) == Proceed()


def test_a_backend_is_advised_only_where_it_helps() -> None:
    # LMCache takes no states on CPU that leave part of a page empty, whoever copies
    padded = _verdict(RECURRENT, accelerator={"vendor": "CPU"})
    unequal = _verdict(_LARGE_GLOBAL_HEADS, accelerator={"vendor": "CPU"})
    assert isinstance(padded, Refuse)
    assert isinstance(unequal, Refuse)
    assert "deviceBackend" not in padded.message
    assert "Set spec.accelerator.deviceBackend to hostcpu" in unequal.message
