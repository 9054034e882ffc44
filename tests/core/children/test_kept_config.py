"""The config.json of a hub is kept beside its pod template, and stands in for the same question only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from couchbase_lm_operator.core.children import children
from couchbase_lm_operator.core.children.kept_config import from_records, to_record
from couchbase_lm_operator.core.children.template_pin import pin
from couchbase_lm_operator.core.observed import Missing, ModelConfig

RESOURCE: dict[str, Any] = {"metadata": {"name": "demo", "namespace": "ns", "uid": "uid-1"}}
ASKED = "https://huggingface.co org/model main"
CONFIG = ModelConfig({"rope_theta": 1e6, "name": "é"}, "digest-of-the-file", "c0ffee", "config.json of it", ASKED)


def _child(config: ModelConfig, number: int, resource: dict[str, Any] = RESOURCE) -> dict[str, Any]:
    found = pin(
        resource=resource,
        children={},
        fields_hash=f"f{number}",
        template={"spec": {"number": number}},
        facts={},
        config=to_record(config),
        approved="",
    )
    return children.adopted({**found.record, "revision": number}, resource)


def test_a_kept_config_comes_back_as_it_was() -> None:
    assert from_records([_child(CONFIG, 1)], "uid-1", ASKED) == CONFIG


def test_the_last_one_of_the_same_question_counts() -> None:
    later = replace(CONFIG, revision="later")
    other = replace(CONFIG, revision="other", asked="https://huggingface.co org/model v2")
    kept = [_child(later, 2), _child(other, 3), _child(CONFIG, 1)]
    assert from_records(kept, "uid-1", ASKED) == later
    assert from_records(kept, "uid-1", "https://mirror.example.com org/model main") is None


def test_only_what_a_hub_gave_is_kept() -> None:
    assert to_record(replace(CONFIG, asked="")) is None
    assert to_record(Missing("it")) is None
    assert from_records([_child(replace(CONFIG, asked=""), 1)], "uid-1", "") is None


def test_records_of_others_and_broken_ones_do_not_count() -> None:
    foreign = _child(CONFIG, 1, {"metadata": {**RESOURCE["metadata"], "uid": "uid-2"}})
    assert from_records([foreign], "uid-1", ASKED) is None
    for spoilt in ({"text": None}, {"text": "no JSON"}, {"digest": 1}):
        child = _child(CONFIG, 1)
        child["data"]["config"] |= spoilt
        assert from_records([child], "uid-1", ASKED) is None
