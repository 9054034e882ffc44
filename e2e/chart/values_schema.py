"""The JSON schema of the chart's values: its own frame around the operator's schema of ``spec``.

Helm checks values against it before it renders anything; every object refuses unknown keys, so that a misspelt
value is an error and not silence. Written by ``make generate``.
"""

from __future__ import annotations

from typing import Any

from couchbase_lm_operator.api.crd import spec_schema

Schema = dict[str, Any]

_DNS_LABEL = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
_DNS_NAME = "^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"

TEXT: Schema = {"type": "string"}
SWITCH: Schema = {"type": "boolean"}
LABEL: Schema = {"type": "string", "pattern": _DNS_LABEL}
TEXTS_BY_NAME: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
# whole, and not below the 1 GiB that the operator's setting asks for
L1_CAP: Schema = {
    "type": "string",
    "pattern": "^([1-9][0-9]*(Gi|Ti)|(102[4-9]|10[3-9][0-9]|1[1-9][0-9]{2}|[2-9][0-9]{3}|[1-9][0-9]{4,})Mi)$",
}
QUANTITY: Schema = {"type": ["string", "number"], "pattern": "^[0-9]+(\\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$"}


def values_schema() -> Schema:
    """Return the whole schema."""
    frame = _closed(
        {
            "nameOverride": {"type": "string", "maxLength": 63},
            "fullnameOverride": {"type": "string", "maxLength": 45},
            "image": _image(),
            "imagePullSecrets": {"type": "array", "items": _closed({"name": TEXT}, required=["name"])},
            "watchNamespaces": {"type": "array", "uniqueItems": True, "items": LABEL},
            "operator": _operator(),
            "engine": _closed({"image": TEXT, "imageCPU": TEXT}),
            "resources": _resources(),
            "podAnnotations": TEXTS_BY_NAME,
            "podLabels": TEXTS_BY_NAME,
            "nodeSelector": TEXTS_BY_NAME,
            # parts of a pod: the API server judges them
            "tolerations": {"type": "array", "items": {"type": "object"}},
            "affinity": {"type": "object"},
            "priorityClassName": TEXT,
            "serviceAccount": _closed({"create": SWITCH, "name": TEXT, "annotations": TEXTS_BY_NAME}),
            "crdUpgrade": _closed({"enabled": SWITCH}),
            "admissionPolicy": _closed({"enabled": SWITCH}),
            "instances": _instances(),
            # what Helm itself puts there when this chart is a dependency of another one
            "global": {"type": "object"},
        }
    )
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Values of lmcache-couchbase", **frame}


def _image() -> Schema:
    return _closed(
        {
            "repository": {"type": "string", "minLength": 1, "pattern": "^[^\\s@]+$"},
            "tag": {"type": "string", "minLength": 1, "maxLength": 128},
            "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
            "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
        }
    )


def _operator() -> Schema:
    return _closed(
        {
            "workers": {"type": "integer", "minimum": 1, "maximum": 64},
            "maxL1Size": L1_CAP,
            "allowHostPath": SWITCH,
            "logLevel": {"enum": ["debug", "info", "warning", "error"]},
            "logFormat": {"enum": ["plain", "json"]},
        }
    )


def _resources() -> Schema:
    quantities: Schema = {"type": "object", "additionalProperties": QUANTITY}
    return _closed({"requests": quantities, "limits": quantities})


def _instances() -> Schema:
    instance = _closed({"namespace": LABEL, "spec": spec_schema()}, required=["spec"])
    return {
        "type": "object",
        "propertyNames": {"pattern": _DNS_NAME, "maxLength": 253},
        "additionalProperties": instance,
    }


def _closed(properties: Schema, *, required: list[str] | None = None) -> Schema:
    schema: Schema = {"type": "object", "additionalProperties": False, "properties": properties}
    return {**schema, "required": required} if required else schema
