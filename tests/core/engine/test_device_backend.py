"""Device backends by name and vendor, and the transfer that they make possible."""

from __future__ import annotations

from typing import Any

import pytest

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.checks import check
from couchbase_lm_operator.core.verdict import Proceed, Refuse
from tests.core.planning import RELEASE, config_of, observed_with, plan_of, spec_of
from tests.core.tiny_models import DENSE, LATENT, SLIDING

GIB = 1 << 30
CPU = {"vendor": "CPU"}
HOSTCPU = {"vendor": "CPU", "deviceBackend": "hostcpu"}
SMALL_BLOCKS = {"engine": {"blockSize": 32}}
TWO_HEAD_SIZES = {
    **SLIDING,
    "model_type": "gemma4_text",
    "architectures": ["Gemma4ForCausalLM"],
    "global_head_dim": 128,
}


def _verdict(content: dict[str, Any] = DENSE, **changes: Any) -> Any:
    return check(spec_of(**changes), observed_with(config_of(content)), RELEASE)


def _refusal(content: dict[str, Any] = DENSE, **changes: Any) -> Refuse:
    said = _verdict(content, **changes)
    assert isinstance(said, Refuse), said
    return said


@pytest.mark.parametrize(
    ("accelerator", "told"),
    [
        ({"vendor": "CPU", "deviceBackend": "hostcpuu"}, "use hostcpu, or remove it"),
        ({"vendor": "NVIDIA", "deviceBackend": "cuda"}, "remove it to use LMCache's own for the vendor"),
        ({"vendor": "NVIDIA", "deviceBackend": "hostcpu"}, "is for vendor CPU; with vendor NVIDIA remove it"),
    ],
)
def test_a_backend_that_nobody_has_is_refused_before_a_pod_starts(accelerator: dict[str, str], told: str) -> None:
    said = _refusal(accelerator=accelerator)
    assert said.reason == Reason.DEVICE_BACKEND_NOT_SUPPORTED
    assert f"spec.accelerator.deviceBackend '{accelerator['deviceBackend']}'" in said.message
    assert told in said.message


def test_users_cannot_hide_the_backend_from_the_engine() -> None:
    environment = {"env": [{"name": "PYTHONPATH", "value": "/elsewhere"}]}
    said = _refusal(accelerator=HOSTCPU, engine=environment)
    assert (said.reason, "spec.engine.env sets PYTHONPATH" in said.message) == (Reason.ENV_NOT_ALLOWED, True)
    assert _verdict(accelerator=CPU, engine=environment) == Proceed()


@pytest.mark.parametrize("field", ["engine", "cache"])
def test_users_choose_the_backend_by_its_field(field: str) -> None:
    said = _refusal(**{field: {"env": [{"name": "LMCACHE_DEVICE_BACKEND", "value": "hostcpu"}]}})
    assert said.reason == Reason.ENV_NOT_ALLOWED


def test_the_engine_copies_unless_somebody_asks_for_more() -> None:
    plan = plan_of(spec_of(accelerator=HOSTCPU), DENSE)
    assert plan.transfer_mode == "EngineDriven"
    assert plan.sizing.shared_memory_bytes == plan_of(spec_of(accelerator=CPU), DENSE).sizing.shared_memory_bytes


@pytest.mark.parametrize(
    ("accelerator", "told"),
    [
        (CPU, "Set spec.accelerator.deviceBackend to hostcpu"),
        ({"vendor": "NVIDIA"}, "this version shares them with no other container"),
    ],
)
def test_a_device_that_hands_nothing_over_cannot_be_driven_by_lmcache(accelerator: dict[str, str], told: str) -> None:
    said = _refusal(accelerator=accelerator, cache={"transfer": "LMCacheDriven"})
    assert said.reason == Reason.TRANSFER_NOT_SUPPORTED
    assert said.message.startswith("spec.cache.transfer LMCacheDriven: ")
    assert told in said.message


def test_lmcache_copies_from_shared_memory_that_holds_the_cache_of_every_rank_twice() -> None:
    engine = {"tensorParallelSize": 2, "env": [{"name": "VLLM_CPU_KVCACHE_SPACE", "value": "3"}]}
    plan = plan_of(spec_of(accelerator=HOSTCPU, engine=engine, cache={"transfer": "LMCacheDriven"}), DENSE)
    assert plan.transfer_mode == "LMCacheDriven"
    assert plan.sizing.shared_memory_bytes == 2 * GIB + 2 * 2 * 3 * GIB


@pytest.mark.parametrize("value", ["\u00b2", "9" * 5000, "-1", "a lot"])
def test_kv_memory_that_is_no_number_counts_as_the_default(value: str) -> None:
    engine = {"env": [{"name": "VLLM_CPU_KVCACHE_SPACE", "value": value}]}
    plan = plan_of(spec_of(accelerator=HOSTCPU, engine=engine, cache={"transfer": "LMCacheDriven"}), DENSE)
    assert plan.sizing.shared_memory_bytes == 2 * GIB + 2 * 4 * GIB


@pytest.mark.parametrize("content", [DENSE, LATENT])
def test_a_backend_shares_objects_with_engines_without_one_and_each_transfer_keeps_its_own(
    content: dict[str, Any],
) -> None:
    plans = [
        plan_of(spec_of(accelerator=accelerator, cache={"transfer": mode}), content)
        for accelerator, mode in ((CPU, "EngineDriven"), (HOSTCPU, "EngineDriven"), (HOSTCPU, "LMCacheDriven"))
    ]
    without_backend, engine_driven, lmcache_driven = (plan.key_prefix for plan in plans)
    assert without_backend == engine_driven != lmcache_driven
    assert len({plan.sizing.object_bytes for plan in plans}) == 1


def test_windows_that_stay_windows_are_objects_of_their_own() -> None:
    whole = plan_of(spec_of(accelerator=HOSTCPU, **SMALL_BLOCKS), SLIDING)
    cut = plan_of(spec_of(accelerator=HOSTCPU, cache={"transfer": "LMCacheDriven"}, **SMALL_BLOCKS), SLIDING)
    assert (whole.values.layout.hybrid_kv_cache, cut.values.layout.hybrid_kv_cache) == (False, True)
    assert (len(whole.sizing.object_bytes), len(cut.sizing.object_bytes)) == (1, 2)
    assert cut.sizing.layout.required_flags["lmcache"] == {"--separate-object-groups": ""}
    assert whole.key_prefix != cut.key_prefix


def test_layers_that_no_engine_can_copy_are_lmcaches() -> None:
    said = _refusal(TWO_HEAD_SIZES, accelerator=CPU)
    assert "Set spec.accelerator.deviceBackend to hostcpu" in said.message
    said = _refusal(TWO_HEAD_SIZES, accelerator=HOSTCPU, cache={"transfer": "EngineDriven"})
    assert "Remove spec.cache.transfer" in said.message
    plan = plan_of(spec_of(accelerator=HOSTCPU, **SMALL_BLOCKS), TWO_HEAD_SIZES)
    assert plan.transfer_mode == "LMCacheDriven"
    assert "heads of different numbers or sizes" in plan.transfer_reason
