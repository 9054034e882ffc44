"""Plan -> manifests. Templates show values and compute nothing; every value goes through ``tojson``."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import jinja2
import yaml

from couchbase_lm_operator.core.fingerprint import digest

if TYPE_CHECKING:
    from couchbase_lm_operator.core.observed import Manifest
    from couchbase_lm_operator.core.plan import Plan
    from couchbase_lm_operator.core.pod_template.workload import Frame, Pod

_TEMPLATES = ("vllm/deployment.yaml.j2", "vllm/service.yaml.j2")
_HASH_DIGITS = 16


def render(plan: Plan) -> tuple[Manifest, ...]:
    """Return the Deployment and the Service of a plan, without owner and without credentials."""
    return _rendered(frame=plan.workload.frame, pod=plan.workload.pod)


def render_frame(frame: Frame) -> tuple[Manifest, ...]:
    """Return the Deployment, without its pod template, and the Service of a resource whose pods are to stay."""
    return _rendered(frame=frame, pod=None)


def pod_template_hash(plan: Plan) -> str:
    """Return the hash of the fields of the resource that shape its pods.

    It covers what users wrote and the model they named, not what this release of the operator makes of
    it: as long as it is the same, a pod template that was pinned under it stays in effect.
    """
    return digest(plan.pod_fields)[:_HASH_DIGITS]


def pod_template(manifests: tuple[Manifest, ...]) -> Manifest:
    """Return the pod template of a rendering."""
    return dict(next(item for item in manifests if item["kind"] == "Deployment")["spec"]["template"])


def _rendered(**shown: Frame | Pod | None) -> tuple[Manifest, ...]:
    environment = _environment()
    texts = (environment.get_template(name).render(**shown) for name in _TEMPLATES)
    return tuple(yaml.safe_load(text) for text in texts)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("couchbase_lm_operator"),
        undefined=jinja2.StrictUndefined,
        # JSON is escaped by tojson; HTML escapes would damage it
        autoescape=False,  # noqa: S701 - YAML, not HTML
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["tojson"] = _json
    return environment


def _json(value: Any) -> str:
    # JSON is YAML; jinja's own filter would escape <, > and & for HTML
    return json.dumps(value, ensure_ascii=True)
