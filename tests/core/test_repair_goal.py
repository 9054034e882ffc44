"""What goes on at Couchbase beside a spec that cannot be followed is only what was proven, in its whole size."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator import names
from couchbase_lm_operator.core.children import children
from couchbase_lm_operator.core.facts import template_facts
from couchbase_lm_operator.core.observed import SecretValue
from couchbase_lm_operator.core.plan import make_plan
from couchbase_lm_operator.core.progress import goal_digest
from couchbase_lm_operator.core.repair_goal import repair_goal
from tests.core.planning import QWEN3_8B, RELEASE, config_of, observed_with, spec_of

if TYPE_CHECKING:
    from couchbase_lm_operator.core.observed import Observed

WANTED: dict[str, Any] = {"cache": {"workingSet": {"contexts": 7}}, "couchbase": {"user": {"name": "engines"}}}


def _observed(*, has_size: bool = True, **changes: Any) -> Observed:
    """Return a resource whose plan was brought into effect, and whose model cannot be read any more."""
    observed = observed_with(config_of(QWEN3_8B))
    plan = make_plan(spec_of(**WANTED), observed, RELEASE)
    facts = template_facts(plan)
    if not has_size:
        del facts["workingSetBytesPerContext"]
    record = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"name": "demo-0123456789", "annotations": {names.ANNOTATION_TEMPLATE_HASH: "f1"}},
        "revision": 1,
        "data": {"revision": "0123456789", "template": {}, "facts": facts},
    }
    status = {"workload": {"revision": "0123456789"}, "couchbase": {"provisionedDigest": goal_digest(plan.couchbase)}}
    resource = {**observed.resource, "status": status}
    adopted = children.adopted(record, resource)
    return replace(observed, resource=resource, children={children.key(adopted): adopted}, **changes)


def test_the_proven_goal_is_worked_for_with_the_size_that_was_planned() -> None:
    planned = make_plan(spec_of(**WANTED), observed_with(config_of(QWEN3_8B)), RELEASE).couchbase
    found = repair_goal(spec_of(**WANTED, engine={"extraArgs": ["--enable-lora"]}), _observed())
    assert found is not None
    assert found.bucket == planned.bucket
    assert found.bucket.working_set_bytes > 0


def test_another_couchbase_part_waits_for_a_spec_that_can_be_followed() -> None:
    changed = spec_of(cache=WANTED["cache"], couchbase={**WANTED["couchbase"], "scope": "elsewhere"})
    assert repair_goal(changed, _observed()) is None


def test_a_size_that_is_not_known_is_not_guessed() -> None:
    found = repair_goal(spec_of(**WANTED), _observed(has_size=False))
    assert found is not None
    assert found.bucket.working_set_bytes is None


def test_the_administrator_is_never_written_as_a_user() -> None:
    admin = SecretValue("cb-admin", "1", {"username": "engines", "password": "x"})
    assert repair_goal(spec_of(**WANTED), _observed(admin_credentials=admin)) is None
