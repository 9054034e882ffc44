"""What the chart takes as values, and what it refuses before anything is rendered."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from pydantic import ValidationError

from couchbase_lm_operator.core.quantity import parse_bytes
from couchbase_lm_operator.settings import Settings
from e2e.chart.values_schema import values_schema
from e2e.demo.kube import DemoError, Kube
from tests.chart.charts import CHART, CI_VALUES, Release, of_kind

if TYPE_CHECKING:
    from pathlib import Path

SPEC = {"model": {"id": "Qwen/Qwen3-8B"}, "couchbase": {"connectionString": "couchbase://cb"}}


@pytest.fixture
def release(tmp_path: Path) -> Release:
    return Release(Kube(tmp_path / "no-kubeconfig"), "somewhere", tmp_path)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"operatr": {}}, "operatr"),
        ({"operator": {"worker": 2}}, "worker"),
        ({"operator": {"workers": 0}}, "/operator/workers"),
        ({"operator": {"maxL1Size": "32GB"}}, "/operator/maxL1Size"),
        ({"operator": {"maxL1Size": "512Mi"}}, "/operator/maxL1Size"),
        ({"image": {"digest": "latest"}}, "/image/digest"),
        ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
        ({"watchNamespaces": ["Team_A"]}, "/watchNamespaces/0"),
        ({"watchNamespaces": ["a", "a"]}, "/watchNamespaces"),
        ({"serviceAccount": {"annotation": {}}}, "annotation"),
        ({"instances": {"Upper": {"spec": SPEC}}}, "Upper"),
        ({"instances": {"a": {"spec": SPEC, "replicas": 2}}}, "replicas"),
        ({"instances": {"a": {"spec": {**SPEC, "replica": 2}}}}, "replica"),
        ({"instances": {"a": {"spec": {"model": {"id": "x"}}}}}, "couchbase"),
        ({"instances": {"a": {"spec": {**SPEC, "cache": {"ttll": "1h"}}}}}, "ttll"),
        ({"instances": {"a": {"spec": {**SPEC, "replicas": "two"}}}}, "/instances/a/spec/replicas"),
    ],
)
def test_a_wrong_value_is_refused_by_name(release: Release, values: dict[str, Any], told: str) -> None:
    with pytest.raises(DemoError, match="schema") as refused:
        release.template(values)
    assert told in str(refused.value)


def test_every_value_has_a_default_and_a_place_in_the_schema() -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(values_schema()["properties"]) == {*defaults, "global"}


@pytest.mark.parametrize(
    "size", ["1Mi", "999Mi", "1023Mi", "1024Mi", "1099Mi", "1100Mi", "2000Mi", "10240Mi", "1Gi", "1Ti"]
)
def test_the_chart_takes_the_caps_of_l1_that_the_operator_starts_with(size: str) -> None:
    pattern = values_schema()["properties"]["operator"]["properties"]["maxL1Size"]["pattern"]
    try:
        Settings(max_l1_bytes=parse_bytes(size))
    except ValidationError:
        is_taken = False
    else:
        is_taken = True
    assert bool(re.search(pattern, size)) == is_taken


@pytest.mark.parametrize("values_file", CI_VALUES, ids=lambda path: path.stem)
def test_the_operator_starts_with_what_the_charts_own_examples_set(values_file: Path) -> None:
    operator = yaml.safe_load(values_file.read_text()).get("operator", {})
    assert Settings(max_l1_bytes=parse_bytes(operator.get("maxL1Size", "32Gi"))).max_l1_bytes


def test_no_object_of_the_schema_takes_unknown_keys() -> None:
    # "spec" is the operator's, with pod parts in it that only the API server can judge.
    judged_elsewhere = {"values.affinity", "values.global", "values.tolerations[]", "values.instances.*.spec"}

    def open_objects(schema: dict[str, Any], path: str) -> list[str]:
        if path in judged_elsewhere or schema.get("type") not in ("object", "array"):
            return []
        closed = schema["type"] == "array" or "additionalProperties" in schema
        parts = [(part, f"{path}.{name}") for name, part in schema.get("properties", {}).items()]
        if isinstance(schema.get("additionalProperties"), dict):
            parts.append((schema["additionalProperties"], f"{path}.*"))
        if "items" in schema:
            parts.append((schema["items"], f"{path}[]"))
        return ([] if closed else [path]) + [found for part, name in parts for found in open_objects(part, name)]

    assert open_objects(values_schema(), "values") == []


@pytest.mark.parametrize("values_file", CI_VALUES, ids=lambda path: path.stem)
def test_lint_finds_nothing(release: Release, values_file: Path) -> None:
    printed = release.kube.helm("lint", str(CHART), "--strict", "--values", str(values_file))
    assert "0 chart(s) failed" in printed


def test_instances_are_passed_on_word_for_word(release: Release) -> None:
    spec = {**SPEC, "engine": {"maxModelLen": 1048576, "gpuMemoryUtilization": "0.90"}, "cache": {"ttl": "0"}}
    rendered = release.template({"instances": {"a": {"spec": spec}, "b": {"namespace": "other", "spec": SPEC}}})
    made = {each["metadata"]["name"]: each for each in of_kind(rendered, "LMCacheCouchbase")}
    assert made["a"]["spec"] == spec
    assert made["a"]["metadata"]["namespace"] == "somewhere"
    assert made["b"]["metadata"]["namespace"] == "other"


def test_nothing_secret_is_made_by_templates(release: Release) -> None:
    rendered = release.template({"instances": {"a": {"spec": SPEC}}})
    assert of_kind(rendered, "Secret") == []
    assert json.dumps(rendered) == json.dumps(release.template({"instances": {"a": {"spec": SPEC}}}))
