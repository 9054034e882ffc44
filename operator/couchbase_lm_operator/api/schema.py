"""Building blocks of the resource's models: base class, bounded strings, list and map kinds. Pure.

The bounds are not decoration: the API server estimates the cost of every CEL rule from them.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel


class Model(BaseModel):
    """Base of all parts: camelCase on the wire, immutable in the program, unknown fields ignored.

    Unknown fields are ignored so that an operator that is older than the CRD goes on working; the
    command line validates with ``extra="forbid"``, and the API server prunes or refuses them itself.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)


def rule(expression: str, message: str) -> dict[str, str]:
    """Return one CEL validation rule of a schema."""
    return {"rule": expression, "message": message}


def rules(*entries: dict[str, str]) -> dict[str, Any]:
    """Return the schema extension that carries CEL rules."""
    return {"x-kubernetes-validations": list(entries)}


def list_map(*keys: str) -> dict[str, Any]:
    """Return the schema extension of a list whose entries are told apart by ``keys``."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


LIST_SET: dict[str, Any] = {"x-kubernetes-list-type": "set"}
LIST_ATOMIC: dict[str, Any] = {"x-kubernetes-list-type": "atomic"}

_QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
_DURATION_PATTERN = r"^(0|([0-9]{1,6}d)?([0-9]{1,8}h)?([0-9]{1,9}m)?([0-9]{1,10}s)?)$"
# RFC 1123, as the API server has it. More than tidiness: the operator asks for objects by these names, with rights
# on every namespace, so a name must never be able to become a path.
_OBJECT_NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"

ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=_OBJECT_NAME_PATTERN)]
KeyName = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
ShortText = Annotated[str, Field(max_length=128)]
Argument = Annotated[str, Field(max_length=4096)]
MAX_BYTES_TEXT = "1Pi"
"""The largest size that a field takes: whatever is multiplied from it still fits the API's 64-bit integers."""
Bytes = Annotated[
    str,
    Field(
        min_length=1,
        max_length=32,
        pattern=_QUANTITY_PATTERN,
        json_schema_extra=rules(
            rule(
                f"quantity(self).compareTo(quantity('{MAX_BYTES_TEXT}')) <= 0",
                f"a size is at most {MAX_BYTES_TEXT}",
            )
        ),
    ),
]
"""A size as a Kubernetes quantity, for example ``512Mi``."""
Duration = Annotated[str, Field(min_length=1, max_length=32, pattern=_DURATION_PATTERN)]
"""A time span, for example ``24h``, ``1d12h`` or ``0``."""
IntOrPercent = Annotated[
    int | str,
    WithJsonSchema({"x-kubernetes-int-or-string": True, "maxLength": 8, "pattern": r"^([0-9]+|[0-9]+%)$"}),
]

_POD_PART = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
PodPart = Annotated[dict[str, Any], WithJsonSchema(_POD_PART)]
"""A piece of a pod that the API server judges (server-side dry run), not a model of ours."""
_NAMED_PART = {
    **_POD_PART,
    "required": ["name"],
    "properties": {
        "name": {
            "type": "string",
            "minLength": 1,
            "maxLength": 253,
            "description": "Name; the other fields are those of a pod.",
        }
    },
}
NamedPart = Annotated[dict[str, Any], WithJsonSchema(_NAMED_PART)]
"""A pod part in a list that is keyed by ``name``."""


class LocalReference(Model):
    """An object of the same namespace, by name."""

    name: ObjectName = Field(description="Name of the object, in the namespace of this resource.")


class KeyReference(Model):
    """One key of an object of the same namespace."""

    name: ObjectName = Field(description="Name of the object, in the namespace of this resource.")
    key: KeyName = Field(description="Key in the object's data.")
