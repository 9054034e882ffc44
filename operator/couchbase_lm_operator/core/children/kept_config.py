"""The hub's config.json beside the pod template that was worked out from it. Pure.

A hub that does not answer must not stop a resource that was planned before, also when the operator has been
started anew meanwhile. The record of the pod template in effect therefore keeps the file, and for what the hub
was asked: as long as the same is asked, the file stands in for the answer.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator.core.children.children import is_ours
from couchbase_lm_operator.core.model.model_reading import parse_model_config
from couchbase_lm_operator.core.observed import ModelConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

    from couchbase_lm_operator.core.observed import MalformedModelConfig, Manifest, Missing, Unread

_FIELDS = ("asked", "digest", "revision", "source", "text")


def to_record(found: ModelConfig | MalformedModelConfig | Missing | Unread) -> dict[str, str] | None:
    """Return what to keep of a config that a hub gave; None for any other.

    The file is kept as text: as JSON it would come back with other spellings of its numbers.
    """
    if not isinstance(found, ModelConfig) or not found.asked:
        return None
    text = json.dumps(found.content, separators=(",", ":"))
    return dict(zip(_FIELDS, (found.asked, found.digest, found.revision, found.source, text), strict=True))


def from_records(children: Iterable[Manifest], resource_uid: str, asked: str) -> ModelConfig | None:
    """Return the config that was kept last for the same question, if there is one."""
    records = [
        child
        for child in children
        if child["kind"] == "ControllerRevision"
        and is_ours(child, resource_uid)
        and _record(child).get("asked") == asked
    ]
    if not records:
        return None
    record = _record(max(records, key=lambda child: int(child["revision"])))
    found = parse_model_config(record["text"], record["source"])
    if not isinstance(found, ModelConfig):
        return None
    return replace(found, digest=record["digest"], revision=record["revision"], asked=asked)


def _record(child: Manifest) -> dict[str, Any]:
    """Return the kept config of a record, or nothing when it has none or not all of it."""
    record = (child.get("data") or {}).get("config") or {}
    return dict(record) if all(isinstance(record.get(name), str) for name in _FIELDS) else {}
