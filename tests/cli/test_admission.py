"""``lmcb plan`` refuses what the API server would refuse, in the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner

from couchbase_lm_operator.__main__ import main
from couchbase_lm_operator.api.crd import crd
from couchbase_lm_operator.cli.admission import NAME_RULE, RULES
from tests.core.planning import spec_dict

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATH = {"id": "/models/m", "config": {"configMapRef": {"name": "m"}}}
_KEYS = {"name": "a", "key": "b"}


def _rules(node: Any) -> Iterator[dict[str, str]]:
    if isinstance(node, dict):
        yield from node.get("x-kubernetes-validations", [])
        for part in node.values():
            yield from _rules(part)
    elif isinstance(node, list):
        for part in node:
            yield from _rules(part)


def test_every_rule_of_the_crd_that_needs_no_older_resource_is_known_offline() -> None:
    # sizes are judged by core.spec_bounds, with the field's name
    told = {
        each["message"] for each in _rules(crd()) if "oldSelf" not in each["rule"] and "quantity(" not in each["rule"]
    }
    assert told == {*RULES, NAME_RULE}


def _planned(spec: dict[str, Any], name: str = "demo") -> tuple[int, str]:
    made = {
        "apiVersion": "lmcache-couchbase.io/v1alpha1",
        "kind": "LMCacheCouchbase",
        "metadata": {"name": name},
        "spec": spec,
    }
    result = CliRunner().invoke(main, ["plan", "-"], input=yaml.safe_dump(made))
    assert isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"couchbase": {"provisioning": "External"}}, "credentialsSecretRef, bucket.name, scope and collection"),
        ({"couchbase": {"credentialsSecretRef": {"name": "u"}}}, "credentialsSecretRef is for provisioning External"),
        ({"couchbase": {"tls": {"caSecretRef": _KEYS, "caConfigMapRef": _KEYS}}}, "spec.couchbase.tls: set at most"),
        ({"couchbase": {"bucket": {"management": "Shared"}}}, "bucket.name is required"),
        ({"couchbase": {"bucket": {"management": "Shared", "name": "b", "reclaimPolicy": "Delete"}}}, "never deleted"),
        ({"couchbase": {"bucket": {"evictionPolicy": "valueOnly"}}}, "spec.couchbase.bucket: evictionPolicy"),
        ({"model": {"id": "/models/m"}}, "config.configMapRef must name"),
        ({"model": {**_PATH, "revision": "r"}}, "which has no revision"),
        ({"model": {"config": {"hub": {}, "configMapRef": {"name": "m"}}}}, "at most one of hub and configMapRef"),
        ({"model": {"weights": {"emptyDir": {}, "pvc": {"claimName": "c"}}}}, "at most one of emptyDir and pvc"),
        ({"couchbase": {"managementEndpoints": ["http://a", "http://a"]}}, "'http://a' more than once"),
        ({"engine": {"env": [{"name": "A"}, {"name": "A"}]}}, "spec.engine.env has 'A' more than once"),
        ({"cache": {"chunkSize": "256"}}, "spec.cache.chunkSize"),
        ({"unknown": 1}, "spec.unknown"),
    ],
)
def test_what_the_api_server_refuses_is_not_planned(changes: dict[str, Any], told: str) -> None:
    code, output = _planned(spec_dict(**changes))
    assert code != 0
    assert told in output
    assert "Traceback" not in output


def test_rest_api_needs_an_admin() -> None:
    spec = spec_dict(couchbase={"provisioning": "RestAPI"})
    del spec["couchbase"]["adminSecretRef"]
    assert "adminSecretRef is required" in _planned(spec)[1]


@pytest.mark.parametrize("name", ["a.b", "1a", "A", "a" * 64])
def test_a_name_that_no_service_can_have_is_not_planned(name: str) -> None:
    assert NAME_RULE in _planned(spec_dict(), name)[1]
