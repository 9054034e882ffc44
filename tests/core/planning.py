"""Builds what a pass would have gathered, for tests of checks, plans and templates."""

from __future__ import annotations

import copy
import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec
from couchbase_lm_operator.core.compat import defaults
from couchbase_lm_operator.core.observed import ModelConfig, Observed
from couchbase_lm_operator.core.plan import make_plan
from couchbase_lm_operator.core.render import render

if TYPE_CHECKING:
    from couchbase_lm_operator.core.defaults import Defaults
    from couchbase_lm_operator.core.observed import Manifest
    from couchbase_lm_operator.core.plan import Plan

QWEN3_8B: dict[str, Any] = {
    "model_type": "qwen3",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16",
}
SMOLLM2: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
SMALLEST_SPEC: dict[str, Any] = {
    "model": {"id": "Qwen/Qwen3-8B"},
    "couchbase": {"connectionString": "couchbase://cb.data.svc", "adminSecretRef": {"name": "cb-admin"}},
}
RELEASE = defaults(operator_image="example.com/operator:1")


def spec_dict(**changes: Any) -> dict[str, Any]:
    """Return the smallest spec with parts replaced by merging them in."""
    return _merged(copy.deepcopy(SMALLEST_SPEC), changes)


def spec_of(**changes: Any) -> LMCacheCouchbaseSpec:
    """Return the smallest spec with parts replaced by merging them in, strictly validated."""
    return LMCacheCouchbaseSpec.model_validate(spec_dict(**changes), extra="forbid")


def config_of(content: dict[str, Any], revision: str = "0123abcd") -> ModelConfig:
    """Return a configuration as it is found."""
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    return ModelConfig(content, digest, revision, "config.json of the test")


def observed_with(config: Any, **changes: Any) -> Observed:
    """Return the picture of a resource ``demo/team`` that refers to nothing else."""
    observed = Observed(
        resource={"metadata": {"name": "demo", "namespace": "team", "uid": "uid-1", "generation": 3}},
        namespace_uid="namespace-uid",
        model_config=config,
        admin_credentials=None,
        user_credentials=None,
        referenced=(),
        ca_pem=None,
        couchbase=None,
        children={},
        pods=(),
        claims=(),
    )
    return replace(observed, **changes)


def plan_of(
    spec: LMCacheCouchbaseSpec, content: dict[str, Any] | None = None, release: Defaults = RELEASE, **changes: Any
) -> Plan:
    """Return the plan of a resource with the given model."""
    return make_plan(spec, observed_with(config_of(content or QWEN3_8B), **changes), release)


def rendered(
    spec: LMCacheCouchbaseSpec, content: dict[str, Any] | None = None, release: Defaults = RELEASE
) -> dict[str, Manifest]:
    """Return the manifests of a resource by kind."""
    return {manifest["kind"]: manifest for manifest in render(plan_of(spec, content, release))}


def pod_spec(manifests: dict[str, Manifest]) -> Manifest:
    """Return the spec of the rendered pods."""
    return dict(manifests["Deployment"]["spec"]["template"]["spec"])


def container(manifests: dict[str, Manifest], name: str) -> Manifest:
    """Return a container or init container by name."""
    spec = pod_spec(manifests)
    return dict(next(each for each in [*spec["initContainers"], *spec["containers"]] if each["name"] == name))


def flag_value(item: Manifest, flag: str) -> str:
    """Return the value of a flag in a container's arguments."""
    return str(item["args"][item["args"].index(flag) + 1])


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    for key, value in changes.items():
        base[key] = _merged(base.get(key, {}), value) if isinstance(value, dict) else value
    return base
