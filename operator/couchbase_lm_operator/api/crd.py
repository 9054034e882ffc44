"""From the models to the CRD and to the schema of the chart's ``instances``. Pure."""

from __future__ import annotations

from typing import Any

import yaml
from kube_custom_resource.registry import CustomResourceRegistry
from kube_custom_resource.schema import resolve_refs

from couchbase_lm_operator import names
from couchbase_lm_operator.api import v1alpha1

Schema = dict[str, Any]


def crd() -> Schema:
    """Return the CustomResourceDefinition as the API server takes it."""
    registry = CustomResourceRegistry(names.GROUP, list(names.CATEGORIES))
    registry.register_model(v1alpha1.LMCacheCouchbase)  # type: ignore[arg-type]
    definition = registry.get_crd(names.GROUP, names.KIND).kubernetes_resource(include_defaults=True)  # type: ignore[call-arg]
    version = definition["spec"]["versions"][0]
    schema = _structural(version["schema"]["openAPIV3Schema"])
    # Helm and kstatus take a resource without status for done; -1 is never a generation.
    schema["properties"]["status"]["default"] = {"observedGeneration": -1}
    # Nested defaults apply only when their object is there, and the rules against changes need them to be;
    # the API server judges this default by those rules before it fills it in.
    bucket = schema["properties"]["spec"]["properties"]["couchbase"]["properties"]["bucket"]
    bucket["default"] = {name: part["default"] for name, part in bucket["properties"].items() if "default" in part}
    version["schema"]["openAPIV3Schema"] = schema
    return dict(definition)


def crd_yaml() -> str:
    """Return the CRD as the text that is kept in the repository and in the chart."""
    header = "# Generated from couchbase_lm_operator/api by `lmcb crds`; do not edit.\n"
    return header + yaml.safe_dump(crd(), sort_keys=False, width=120)


def spec_schema() -> Schema:
    """Return the JSON schema of ``spec`` for the chart, which refuses unknown keys and knows no CEL."""
    resolved = resolve_refs(v1alpha1.LMCacheCouchbaseSpec.model_json_schema())  # type: ignore[no-untyped-call]
    return _closed(_structural(resolved))


def _structural(schema: Schema) -> Schema:
    """Make a pydantic schema structural: no nulls, no unions, no object defaults."""
    alternatives = [part for part in schema.get("anyOf", []) if part.get("type") != "null"]
    if len(alternatives) == 1:
        outer = {key: value for key, value in schema.items() if key != "anyOf"}
        schema = {**alternatives[0], **outer}
    result = {key: value for key, value in schema.items() if key not in {"title", "anyOf"}}
    if "const" in result:  # a choice of one
        result["enum"] = [result.pop("const")]
    # list and object defaults say "empty", which is what absent means; null is no default at all
    if result.get("default") is None or result.get("default") in ({}, []) or isinstance(result.get("default"), dict):
        result.pop("default", None)
    if "default" in result and "description" in result:  # kubectl explain shows no defaults
        default = result["default"]
        shown = str(default).lower() if isinstance(default, bool) else default
        result["description"] = f"{result['description']} Default: {shown}."
    if "properties" in result:
        result["properties"] = {name: _structural(part) for name, part in result["properties"].items()}
    if isinstance(result.get("items"), dict):
        result["items"] = _structural(result["items"])
    if isinstance(result.get("additionalProperties"), dict):
        result["additionalProperties"] = _structural(result["additionalProperties"])
    return result


def _closed(schema: Schema) -> Schema:
    result = {key: value for key, value in schema.items() if not key.startswith("x-kubernetes-")}
    if schema.get("x-kubernetes-int-or-string"):
        result["type"] = ["integer", "string"]
    if "properties" in result:
        result["properties"] = {name: _closed(part) for name, part in result["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            result["additionalProperties"] = False
    if "items" in result:
        result["items"] = _closed(result["items"])
    return result
