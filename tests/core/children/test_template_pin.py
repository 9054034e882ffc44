"""The template that was pinned for the same fields runs, whatever today's operator would render."""

from __future__ import annotations

from typing import Any

from couchbase_lm_operator.core.children import children
from couchbase_lm_operator.core.children.template_pin import Pin, pin

RESOURCE: dict[str, Any] = {"metadata": {"name": "demo", "namespace": "ns", "uid": "uid-1"}}
OLD, NEW = {"spec": {"image": "a:1"}}, {"spec": {"image": "a:2"}}


def _pin(template: dict[str, Any], *kept: Pin, fields: str = "f1", approved: str = "") -> Pin:
    records = [children.adopted(each.record, RESOURCE) for each in kept]
    return pin(
        resource=RESOURCE,
        children={children.key(each): each for each in records},
        fields_hash=fields,
        template=template,
        facts={"of": template},
        config=None,
        approved=approved,
    )


def test_the_first_rendering_is_pinned() -> None:
    first = _pin(OLD)
    assert (first.template, first.pending) == (OLD, "")
    assert first.record["data"] == {"revision": first.revision, "template": OLD, "facts": {"of": OLD}}


def test_the_same_rendering_changes_nothing() -> None:
    first = _pin(OLD)
    again = _pin(OLD, first)
    assert (again.revision, again.pending, again.record) == (first.revision, "", first.record)


def test_another_rendering_of_the_same_fields_is_pending() -> None:
    first = _pin(OLD)
    later = _pin(NEW, first)
    assert (later.template, later.facts, later.revision) == (OLD, {"of": OLD}, first.revision)
    assert later.pending
    assert later.pending != first.revision


def test_an_approved_rendering_takes_effect_and_stays() -> None:
    first = _pin(OLD)
    pending = _pin(NEW, first).pending
    approved = _pin(NEW, first, approved=pending)
    assert (approved.template, approved.revision, approved.pending) == (NEW, pending, "")
    assert approved.record["revision"] > first.record["revision"]
    # also before the old record is pruned, and after the approval is taken out of the spec
    assert _pin(NEW, first, approved).template == NEW
    # an approval of an earlier release says nothing about the next one
    assert _pin({"spec": {"image": "a:3"}}, approved, approved=pending).template == NEW


def test_changed_fields_take_todays_rendering() -> None:
    first = _pin(OLD)
    changed = _pin(NEW, first, fields="f2")
    assert (changed.template, changed.pending) == (NEW, "")


def test_records_of_another_resource_do_not_count() -> None:
    first = _pin(OLD)
    foreign = children.adopted(first.record, {"metadata": {**RESOURCE["metadata"], "uid": "uid-2"}})
    found = pin(
        resource=RESOURCE,
        children={children.key(foreign): foreign},
        fields_hash="f1",
        template=NEW,
        facts={},
        config=None,
        approved="",
    )
    assert found.template == NEW
