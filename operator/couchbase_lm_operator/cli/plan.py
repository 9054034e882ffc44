"""``lmcb plan FILE``: what the operator would make of a resource, offline."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
from pydantic import ValidationError

from couchbase_lm_operator import names
from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec
from couchbase_lm_operator.cli import admission, documents
from couchbase_lm_operator.cli.failure import BadInputError
from couchbase_lm_operator.cli.model_config import config_from_file
from couchbase_lm_operator.cli.numbers import number_rows, numbers
from couchbase_lm_operator.cli.offline import UNKNOWN_NAMESPACE_UID, offline_plan
from couchbase_lm_operator.cli.output import dumped, output_option, table
from couchbase_lm_operator.core.compat import defaults
from couchbase_lm_operator.core.facts import template_facts
from couchbase_lm_operator.core.observed import Missing
from couchbase_lm_operator.core.plan import Plan
from couchbase_lm_operator.core.pod_template.mounted_content import mounted_content
from couchbase_lm_operator.core.pod_template.pod_fields import reads_config_map
from couchbase_lm_operator.core.render import render

if TYPE_CHECKING:
    from couchbase_lm_operator.core.observed import MalformedModelConfig, Manifest, ModelConfig

# The namespace's UID is known in the cluster only; names that contain its hash show this instead.
_UNKNOWN_ID = names.cluster_id(UNKNOWN_NAMESPACE_UID)
_SHOWN_ID = "<cluster>"


@click.command("plan")
@click.argument("file")
@click.option("--model-config", "config_path", help="The model's config.json, when it is not in a ConfigMap of FILE.")
@click.option("--namespace", "-n", default="default", show_default=True, help="Namespace when FILE names none.")
@click.option("--allow-host-path", is_flag=True, help="Plan as an operator that allows hostPath volumes.")
@output_option
def plan_command(file: str, config_path: str | None, namespace: str, output: str, *, allow_host_path: bool) -> None:
    """Show numbers, choices and manifests for the resource in FILE (- is standard input). Asks no cluster."""
    found = documents.read_documents(file)
    resource = documents.only_resource(found, file)
    resource["metadata"] = {"namespace": namespace, "uid": "", **resource["metadata"]}
    spec = _spec(resource, file)
    config = _config(spec, found, resource["metadata"]["namespace"], config_path)
    release = defaults(allow_host_path=allow_host_path)
    plan = offline_plan(spec, resource, config, release)
    click.echo(_shown(plan, _unknowns(plan, spec), output))


def _spec(resource: Manifest, path: str) -> LMCacheCouchbaseSpec:
    """Return the spec as the API server would take it: no unknown field, no text for a number, no broken rule."""
    try:
        text = json.dumps(resource.get("spec") or {}, default=str)
        spec = LMCacheCouchbaseSpec.model_validate_json(text, extra="forbid", strict=True)
    except ValidationError as error:
        problems = [f"spec.{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
    else:
        problems = admission.refusals(resource["metadata"]["name"], spec)
        if not problems:
            return spec
    raise BadInputError(f"{path} is not a valid {names.KIND}:\n" + "\n".join(f"  {each}" for each in problems))


def _config(
    spec: LMCacheCouchbaseSpec, found: list[Manifest], namespace: str, config_path: str | None
) -> ModelConfig | MalformedModelConfig | Missing:
    if config_path is not None:
        return config_from_file(config_path)
    reference = spec.model.config.config_map_ref if spec.model.config else None
    if reference is not None:
        return documents.config_from_map(found, reference.name, reference.key, namespace)
    raise BadInputError(
        f"config.json of {spec.model.id} is on the hub, and this command asks nobody: give it with --model-config PATH."
    )


def _shown(plan: Plan, unknown: list[tuple[str, str]], form: str) -> str:
    manifests = list(render(plan))
    if form != "table":
        whole: dict[str, Any] = {
            "numbers": numbers(plan.sizing),
            "status": {name: template_facts(plan)[name] for name in ("model", "capacity", "transfer")},
            "choices": [{"field": c.field, "value": c.value, "reason": c.reason} for c in plan.choices],
            "unknown": dict(unknown),
            "warnings": [each.to_dict() for each in plan.warnings],
            "manifests": manifests,
        }
        return _with_shown_id(dumped(whole, form))
    choices = [(choice.field, choice.value, choice.reason) for choice in plan.choices]
    rows = [*choices, *((field, "unknown", why) for field, why in unknown)]
    parts = [
        table([*number_rows(plan.sizing), *_payoff_rows(plan)], ("NUMBER", "VALUE", "MEANING")),
        # before columns are measured: both ids have other lengths
        table([tuple(map(_with_shown_id, row)) for row in rows], ("FIELD", "VALUE", "REASON")),
        *(_with_shown_id(f"Warning: {each.message}") for each in plan.warnings),
        _with_shown_id("\n".join("---\n" + dumped(manifest, "yaml") for manifest in manifests)),
    ]
    return "\n\n".join(parts)


def _with_shown_id(text: str) -> str:
    return text.replace(_UNKNOWN_ID, _SHOWN_ID)


def _payoff_rows(plan: Plan) -> list[tuple[str, str, str]]:
    """Return what loading and computing a typical context take, as far as it is known."""
    meanings = {
        "loadTime": "predicted, to load a typical context",
        "recomputeTime": "predicted, to compute it again",
        "worthwhile": "whether loading is predicted to be faster",
    }
    capacity = template_facts(plan)["capacity"]
    words = {True: "yes", False: "no"}
    return [
        (name, words.get(capacity[name], str(capacity[name])), told)
        for name, told in meanings.items()
        if name in capacity
    ]


def _unknowns(plan: Plan, spec: LMCacheCouchbaseSpec) -> list[tuple[str, str]]:
    """Return what only a cluster can tell, and where it comes from."""
    bucket = plan.couchbase.bucket
    found = []
    if plan.couchbase.provisioning == "RestAPI" and bucket.management == "Owned":
        if bucket.memory_quota_bytes is None:
            found.append(("couchbase.bucket.memoryQuota", "the smaller of quotaBytes and half of what is free"))
        if bucket.replicas is None:
            found.append(("couchbase.bucket.replicas", "data nodes and auto-failover settings decide"))
    if plan.couchbase.provisioning == "External":
        found.append(("couchbase.user.name", "in the Secret of couchbase.credentialsSecretRef"))
    if not reads_config_map(spec) and not plan.values.is_path:
        found.append(("model.revision", "the hub resolves it to a commit; cache.keyPrefix depends on it"))
    mounted = mounted_content(spec, plan.values.revision, UNKNOWN_NAMESPACE_UID)
    is_in_prefix = spec.cache.key_prefix is None and "namespace" in mounted
    depends = "; cache.keyPrefix depends on it, as claims and maps have a namespace" if is_in_prefix else ""
    found.append((_SHOWN_ID, f"short id of the cluster in derived names{depends}"))
    return found
