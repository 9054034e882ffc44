"""What a plan decides: keys that never mix, fields that pin pods, names and goals."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from couchbase_lm_operator import names
from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.checks import check
from couchbase_lm_operator.core.couchbase.couchbase_goal import couchbase_goal
from couchbase_lm_operator.core.facts import current_model, template_facts
from couchbase_lm_operator.core.observed import SecretValue
from couchbase_lm_operator.core.render import pod_template_hash, render
from couchbase_lm_operator.core.verdict import Refuse
from tests.core.planning import (
    QWEN3_8B,
    RELEASE,
    SMOLLM2,
    config_of,
    container,
    flag_value,
    observed_with,
    plan_of,
    spec_of,
)
from tests.core.tiny_models import LATENT

if TYPE_CHECKING:
    from couchbase_lm_operator.core.plan import Plan

BASE = plan_of(spec_of())


def _reasons(plan: Plan) -> list[Reason]:
    return [warning.reason for warning in plan.warnings]


@pytest.mark.parametrize(
    "changes",
    [
        {"engine": {"kvCacheDtype": "fp8"}},
        {"engine": {"dtype": "float16"}},
        {"engine": {"blockSize": 32}},
        {"engine": {"attentionBackend": "FLASHINFER"}},
        {"engine": {"maxModelLen": 1000}},
        {"engine": {"pipelineParallelSize": 2}},
        {"engine": {"image": "example.com/vllm:2"}},
        {"engine": {"extraArgs": ["--quantization", "fp8"]}},
        {"engine": {"env": [{"name": "VLLM_USE_X", "value": "1"}]}},
        {"cache": {"chunkSize": 512}},
        {"accelerator": {"vendor": "CPU"}},
    ],
)
def test_what_changes_bytes_changes_the_key_prefix(changes: dict[str, Any]) -> None:
    assert plan_of(spec_of(**changes)).key_prefix != BASE.key_prefix


@pytest.mark.parametrize(
    "changes",
    [
        {"engine": {"tensorParallelSize": 2}},
        {"replicas": 7},
        {"cache": {"ttl": "1h", "l1Size": "4Gi", "shardSize": "2Mi", "shareGroup": "blue-green"}},
        {"terminationGracePeriod": "60s"},
        {"service": {"port": 80}},
        {"podTemplate": {"nodeSelector": {"pool": "gpu"}}},
    ],
)
def test_what_changes_no_bytes_keeps_the_key_prefix(changes: dict[str, Any]) -> None:
    assert plan_of(spec_of(**changes)).key_prefix == BASE.key_prefix


def test_engines_with_latent_attention_share_their_objects_whatever_their_ranks() -> None:
    plans = [plan_of(spec_of(engine={"tensorParallelSize": ranks}), LATENT) for ranks in (1, 2, 4)]
    assert len({plan.key_prefix for plan in plans}) == 1
    assert {(plan.sizing.ranks, plan.sizing.object_bytes) for plan in plans} == {(1, (512 * 3 * 576 * 2,))}


def test_one_server_has_all_ranks_of_an_engine() -> None:
    # real runs: two servers for the ranks of one engine overwrote each other's heads under the same keys
    manifests = {manifest["kind"]: manifest for manifest in render(plan_of(spec_of(engine={"tensorParallelSize": 2})))}
    assert "server_urls" not in flag_value(container(manifests, "vllm"), "--kv-transfer-config")
    given = "--kv-transfer-config.kv_connector_extra_config.lmcache.mp.server_urls=a,b"
    said = check(spec_of(engine={"extraArgs": [given]}), observed_with(config_of(QWEN3_8B)), RELEASE)
    assert isinstance(said, Refuse)
    assert said.reason == Reason.FLAG_NOT_ALLOWED


def test_the_models_commit_and_the_versions_are_in_the_key_prefix() -> None:
    other_commit = plan_of(spec_of(), model_config=config_of(QWEN3_8B, "fedcba98"))
    other_version = plan_of(spec_of(), release=replace(RELEASE, lmcache_version="0.5.7"))
    assert len({BASE.key_prefix, other_commit.key_prefix, other_version.key_prefix}) == 3


def test_a_path_counts_by_the_digest_of_its_config() -> None:
    spec = spec_of(model={"id": "/models/m", "config": {"configMapRef": {"name": "c"}}})
    first = plan_of(spec, model_config=config_of(QWEN3_8B, ""))
    second = plan_of(spec, model_config=config_of({**QWEN3_8B, "rope_theta": 1e6}, ""))
    assert first.key_prefix != second.key_prefix


@pytest.mark.parametrize(("revision", "is_warned"), [("a" * 40, False), ("v1.2", True), (None, True)])
def test_a_hub_model_with_a_config_map_keeps_the_revision_of_the_spec(revision: str | None, *, is_warned: bool) -> None:
    model = {"config": {"configMapRef": {"name": "c"}}} | ({"revision": revision} if revision else {})
    plan = plan_of(spec_of(model=model), model_config=config_of(QWEN3_8B, ""))
    assert template_facts(plan)["model"].get("revision") == revision
    vllm = container({manifest["kind"]: manifest for manifest in render(plan)}, "vllm")
    assert ("--revision" in vllm["args"]) == bool(revision)
    if revision:
        assert flag_value(vllm, "--revision") == revision
    other = plan_of(spec_of(model={**model, "revision": "other"}), model_config=config_of(QWEN3_8B, ""))
    assert other.key_prefix != plan.key_prefix
    assert (Reason.WEIGHTS_NOT_PINNED in _reasons(plan)) == is_warned


def test_a_users_prefix_is_taken_as_it_is_and_warned_about() -> None:
    plan = plan_of(spec_of(cache={"keyPrefix": "mine-v1:"}))
    assert plan.key_prefix == "mine-v1:"
    assert _reasons(plan) == [Reason.KEY_PREFIX_OVERRIDDEN]


@pytest.mark.parametrize(
    "changes",
    [
        {"replicas": 5},
        {"suspend": True},
        {"rollout": {"maxSurge": 1, "approve": "abc"}},
        {"service": {"type": "LoadBalancer"}},
        {"couchbase": {"bucket": {"memoryQuota": "1Gi", "replicas": 1, "reclaimPolicy": "Delete"}}},
        {"couchbase": {"adminSecretRef": {"name": "other"}}},
        {"couchbase": {"managementEndpoints": ["http://a:8091"]}},
        {"cache": {"workingSet": {"contexts": 5}}},
        # defaults that are written out say what absent fields say
        {"engine": {"python": "python3", "tensorParallelSize": 1}, "cache": {"refreshTTL": True}},
    ],
)
def test_what_does_not_shape_pods_keeps_their_template(changes: dict[str, Any]) -> None:
    assert pod_template_hash(plan_of(spec_of(**changes))) == pod_template_hash(BASE)


@pytest.mark.parametrize(
    "changes",
    [
        {"engine": {"extraArgs": ["--enforce-eager"]}},
        {"couchbase": {"bucket": {"name": "b"}}},
        {"couchbase": {"connectionString": "couchbase://other"}},
        {"cache": {"ttl": "1h"}},
        {"cache": {"workingSet": {"tokensPerContext": 2000}}},
        {"podTemplate": {"metadata": {"labels": {"a": "b"}}}},
        {"terminationGracePeriod": "60s"},
    ],
)
def test_what_shapes_pods_unpins_their_template(changes: dict[str, Any]) -> None:
    assert pod_template_hash(plan_of(spec_of(**changes))) != pod_template_hash(BASE)


def test_a_new_release_of_the_operator_keeps_the_template() -> None:
    release = replace(RELEASE, operator_image="example.com/operator:2", engine_images={"NVIDIA": "x", "CPU": "y"})
    assert pod_template_hash(plan_of(spec_of(), release=release)) == pod_template_hash(BASE)


def test_a_new_commit_on_the_hub_keeps_the_template_but_an_edited_config_map_does_not() -> None:
    moved = plan_of(spec_of(), model_config=config_of({**QWEN3_8B, "x": 1}, "fedcba98"))
    assert pod_template_hash(moved) == pod_template_hash(BASE)
    spec = spec_of(model={"config": {"configMapRef": {"name": "c"}}})
    edited = plan_of(spec, {**QWEN3_8B, "x": 1})
    assert pod_template_hash(edited) != pod_template_hash(plan_of(spec))


def test_names_are_derived_and_unique_per_cluster_and_namespace() -> None:
    goal = BASE.couchbase
    cluster = names.cluster_id("namespace-uid")
    assert goal.bucket.name == f"lmcache-{cluster}-demo"
    assert (goal.scope, goal.collection) == ("team", "demo")
    assert goal.user == f"lmcache-{cluster}-team-demo"
    assert goal.secret_name == "demo-couchbase"
    elsewhere = plan_of(spec_of(), namespace_uid="another")
    assert elsewhere.couchbase.user != goal.user


def test_a_share_group_names_the_collection() -> None:
    assert plan_of(spec_of(cache={"shareGroup": "blue-green"})).couchbase.collection == "blue-green"


def test_an_external_user_is_the_one_of_its_secret() -> None:
    spec = spec_of(
        couchbase={
            "provisioning": "External",
            "credentialsSecretRef": {"name": "given"},
            "bucket": {"name": "b"},
            "scope": "s",
            "collection": "c",
        }
    )
    secret = SecretValue("given", "1", {"username": "alice", "password": "secret"})
    goal = couchbase_goal(spec, observed_with(config_of(QWEN3_8B), user_credentials=secret), 0)
    assert (goal.provisioning, goal.user, goal.secret_name) == ("External", "alice", "given")
    assert "secret" not in repr(secret)


def test_the_goal_needs_no_model() -> None:
    goal = couchbase_goal(spec_of(), observed_with(config_of({})), 0)
    assert goal.bucket.name.startswith("lmcache-")


def test_eviction_follows_the_type_of_the_bucket() -> None:
    def eviction(**bucket: str) -> str:
        return plan_of(spec_of(couchbase={"bucket": bucket})).couchbase.bucket.eviction_policy

    assert eviction() == "nruEviction"
    assert eviction(type="Couchbase") == "fullEviction"
    assert eviction(evictionPolicy="noEviction") == "noEviction"


def test_every_open_field_is_a_choice_with_a_reason() -> None:
    chosen = {choice.field: choice for choice in BASE.choices}
    for field in ("engine.image", "engine.dtype", "engine.blockSize", "cache.chunkSize", "cache.l1Size"):
        assert chosen[field].value
        assert chosen[field].reason
    assert "engine.dtype" not in {choice.field for choice in plan_of(spec_of(engine={"dtype": "float16"})).choices}


def test_the_cap_of_l1_is_told() -> None:
    plan = plan_of(spec_of(), release=replace(RELEASE, max_l1_bytes=8 << 30))
    assert plan.sizing.longest_cacheable_tokens < 40960
    assert _reasons(plan) == [Reason.L1_TOO_SMALL]


def test_a_float32_checkpoint_is_run_and_sized_as_bfloat16() -> None:
    plan = plan_of(spec_of(), {**QWEN3_8B, "torch_dtype": "float32"})
    assert (plan.values.layout.dtype, plan.sizing.attention_bytes_per_token) == ("bfloat16", 147_456)


def test_the_checkpoints_8_bit_cache_is_pinned() -> None:
    content = {**QWEN3_8B, "quantization_config": {"kv_cache_quant_algo": "FP8"}}
    plan = plan_of(spec_of(), content)
    assert (plan.values.layout.kv_cache_dtype, plan.sizing.attention_bytes_per_token) == ("fp8", 73_728)


def test_with_an_override_vllm_chooses_its_block_and_we_believe_the_numbers() -> None:
    spec = spec_of(model={"override": {"kvBytesPerToken": 8064, "blockSize": 1024}})
    plan = plan_of(spec, {"model_type": "kimi_linear", "max_position_embeddings": 100_000})
    assert plan.values.block_flag_tokens is None
    assert (plan.sizing.chunk_size_tokens % 1024, plan.sizing.attention_bytes_per_token) == (0, 8064)
    assert plan.sizing.evidence == "override"
    # its groups are unknown, and the engine's copies carry a single one
    assert plan.values.layout.hybrid_kv_cache is False


def test_the_demo_model_fits_the_smallest_l1() -> None:
    plan = plan_of(spec_of(accelerator={"vendor": "CPU"}), SMOLLM2)
    sizing = plan.sizing
    assert (sizing.attention_bytes_per_token, sizing.chunk_size_tokens, sizing.documents_per_chunk) == (23_040, 256, 7)
    assert (sizing.l1_bytes, sizing.shared_memory_bytes) == (1 << 30, 5 << 29)


def test_status_has_the_sizes_of_the_model_and_whether_they_pay_off() -> None:
    facts = template_facts(BASE)
    model, capacity = facts["model"], facts["capacity"]
    assert (model["modelType"], model["evidence"]) == ("qwen3", "real run")
    assert model["kvBytesPerToken"] == {"rank": 147_456, "all": 147_456}
    assert (model["objectBytes"], model["ranks"], model["documentsPerChunk"]) == ([256 * 147_456], 1, 37)
    assert "stateBytes" not in model
    assert capacity["bytesPerContext"] == capacity["loadedBytesPerContext"] == 32 * 256 * 147_456
    # at 2 GB/s, and at 150 TFLOP/s for some 16 GFLOP per token
    assert (capacity["loadTime"], capacity["worthwhile"]) == ("0.6s", True)
    assert facts["prediction"] == {"objectBytes": model["objectBytes"], "ranks": 1}


def test_the_largest_object_of_ranks_with_different_layers_is_predicted() -> None:
    plan = plan_of(spec_of(engine={"pipelineParallelSize": 5, "tensorParallelSize": 2}))
    # 36 layers as 7, 7, 7, 8, 7
    assert template_facts(plan)["prediction"] == {"objectBytes": [256 * 8 * 2048], "ranks": 10}
    assert template_facts(plan)["model"]["kvBytesPerToken"] == {"rank": 8 * 2048, "all": 36 * 4096}


def test_what_an_older_operator_recorded_of_a_model_is_told_in_todays_form() -> None:
    assert current_model({"objectBytes": 5, "ranks": 1}) == {"objectBytes": [5], "ranks": 1}
    assert current_model({"objectBytes": [5, 6]}) == {"objectBytes": [5, 6]}
    assert current_model({}) == {}
