"""What works but is probably not meant is told with a reason and names the field."""

from __future__ import annotations

from typing import Any

import pytest

from couchbase_lm_operator.api.reasons import Reason
from tests.core.planning import plan_of, spec_of

_CONFIG_MAP = {"configMapKeyRef": {"name": "tuning", "key": "dtype"}}
_SECRET = {"secretKeyRef": {"name": "hub", "key": "token"}}


@pytest.mark.parametrize(
    ("changes", "reason", "field"),
    [
        ({"cache": {"keyPrefix": "mine:"}}, Reason.KEY_PREFIX_OVERRIDDEN, "spec.cache.keyPrefix"),
        (
            {"couchbase": {"connectionString": "couchbases://cb", "tls": {"insecureSkipVerify": True}}},
            Reason.TLS_NOT_VERIFIED,
            "spec.couchbase.tls.insecureSkipVerify",
        ),
        (
            {"model": {"revision": "main", "config": {"configMapRef": {"name": "c"}}}},
            Reason.WEIGHTS_NOT_PINNED,
            "spec.model.revision",
        ),
        (
            {"engine": {"envFrom": [{"configMapRef": {"name": "tuning"}}]}},
            Reason.ENV_NOT_IN_FINGERPRINT,
            "spec.engine.envFrom:",
        ),
        (
            {"engine": {"env": [{"name": "KV_DTYPE", "valueFrom": _CONFIG_MAP}]}},
            Reason.ENV_NOT_IN_FINGERPRINT,
            "spec.engine.env (KV_DTYPE):",
        ),
        ({"engine": {"image": "example.com/vllm:0.32"}}, Reason.IMAGE_NOT_PINNED, "spec.engine.image"),
        ({"engine": {"image": "example.com:5000/vllm"}}, Reason.IMAGE_NOT_PINNED, "spec.engine.image"),
        (
            {"cache": {"workingSet": {"tokensPerContext": 16}}},
            Reason.NEVER_CACHED,
            "Contexts of 16 tokens",
        ),
    ],
)
def test_what_is_probably_not_meant_is_told(changes: dict[str, Any], reason: Reason, field: str) -> None:
    warnings = plan_of(spec_of(**changes)).warnings
    assert [each.reason for each in warnings] == [reason]
    assert field in warnings[0].message


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"engine": {"image": f"example.com/vllm@sha256:{'0' * 64}"}},
        {"engine": {"image": f"example.com/vllm:0.32@sha256:{'0' * 64}"}},
        {"engine": {"env": [{"name": "A", "value": "b"}, {"name": "HF_TOKEN", "valueFrom": _SECRET}]}},
    ],
)
def test_what_is_usual_is_not_warned_about(changes: dict[str, Any]) -> None:
    assert plan_of(spec_of(**changes)).warnings == ()
