"""Engine-driven transfer carries layers that are cached alike: others are made alike, or refused beforehand."""

from __future__ import annotations

from typing import Any

import pytest

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.checks import check
from couchbase_lm_operator.core.verdict import Proceed, Refuse
from tests.core.planning import RELEASE, config_of, observed_with, plan_of, spec_of
from tests.core.tiny_models import DENSE, LATENT, RECURRENT, SLIDING, SPARSE

CPU = {"accelerator": {"vendor": "CPU"}}


def _verdict(content: dict[str, Any], **changes: Any) -> Any:
    return check(spec_of(**changes), observed_with(config_of(content)), RELEASE)


@pytest.mark.parametrize("vendor", ["CPU", "NVIDIA"])
@pytest.mark.parametrize(
    ("content", "told"),
    [
        (RECURRENT, "model_type qwen3_next: it has layers with recurrent states beside attention"),
        ({**SLIDING, "model_type": "gemma4_text", "global_head_dim": 128}, "heads of different numbers or sizes"),
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


def test_the_bytes_are_those_of_a_real_run_without_the_hybrid_manager() -> None:
    plan = plan_of(spec_of(**CPU, engine={"blockSize": 32}, cache={"chunkSize": 64}), SLIDING)
    assert plan.sizing.object_bytes == (196_608,)


def test_windows_of_all_layers_are_stored_whole_on_every_device() -> None:
    content = {**SLIDING, "layer_types": ["sliding_attention"] * 6}
    plan = plan_of(spec_of(cache={"chunkSize": 128}), content)
    assert plan.values.layout.hybrid_kv_cache
    assert plan.sizing.object_bytes == (128 * 6 * 2 * 2 * 64 * 2,)


@pytest.mark.parametrize("content", [DENSE, LATENT])
def test_layers_that_are_cached_alike_need_nothing(content: dict[str, Any]) -> None:
    plan = plan_of(spec_of(), content)
    assert plan.values.layout.hybrid_kv_cache
    assert plan.sizing.layout.required_flags == {"vllm": {}, "lmcache": {}}
    assert _verdict(content) == Proceed()
