"""``spec.model``: which model is served and where its configuration and weights come from. Pure."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from couchbase_lm_operator.api.schema import Bytes, KeyReference, Model, ObjectName, rule, rules


class HubSource(Model):
    """Read config.json from a Hugging Face hub."""

    endpoint: str = Field(
        default="https://huggingface.co",
        max_length=512,
        pattern=r"^https?://[^/?#]+(/[^?#]*)?$",
        description="URL of the hub, for mirrors.",
    )


class ConfigMapKey(Model):
    """A key of a ConfigMap of the same namespace."""

    name: ObjectName = Field(description="Name of the ConfigMap.")
    key: str = Field(
        default="config.json",
        min_length=1,
        max_length=253,
        pattern=r"^[-._a-zA-Z0-9]+$",
        description="Key in its data.",
    )


class ModelConfigSource(Model):
    """Where the model's config.json is read from; the hub when absent. At most one of the fields."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule("!(has(self.hub) && has(self.configMapRef))", "set at most one of hub and configMapRef")
        )
    )
    hub: HubSource | None = Field(default=None, description="Read config.json of model.id from a hub. The default.")
    config_map_ref: ConfigMapKey | None = Field(
        default=None, description="Read config.json from a ConfigMap. Needed when model.id is a path inside the pod."
    )


class WeightsEmptyDir(Model):
    """Download the weights into a directory that lives as long as the pod."""

    size_limit: Bytes | None = Field(default=None, description="Upper limit of the directory's size.")


class WeightsClaim(Model):
    """Keep the weights in a volume claim."""

    claim_name: ObjectName = Field(
        description="Name of the PersistentVolumeClaim, mounted at /weights. Where model.id is a path it is part of "
        "the key prefix; what changes in the claim is not."
    )


class WeightsSource(Model):
    """Where weights live in the pod; an emptyDir when absent. At most one of the fields."""

    model_config = ConfigDict(
        json_schema_extra=rules(rule("!(has(self.emptyDir) && has(self.pvc))", "set at most one of emptyDir and pvc"))
    )
    empty_dir: WeightsEmptyDir | None = Field(default=None, description="Download into the pod. The default.")
    pvc: WeightsClaim | None = Field(
        default=None, description="Use a PersistentVolumeClaim, mounted at /weights; hub downloads are kept there."
    )


class SizingOverride(Model):
    """Numbers for a model type that the operator does not know."""

    kv_bytes_per_token: int = Field(
        ge=1,
        le=1 << 30,
        description="Bytes of KV cache of one token on one rank, all its layers together.",
    )
    block_size: int = Field(
        ge=1, le=1 << 20, description="Tokens of the engine's KV block; the chunk size is a multiple of it."
    )


class ModelSpec(Model):
    """The model that is served."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!self.id.startsWith('/') || (has(self.config) && has(self.config.configMapRef))",
                "id is a path inside the pod: config.configMapRef must name the ConfigMap with its config.json",
            ),
            rule(
                "!self.id.startsWith('/') || !has(self.revision)",
                "id is a path inside the pod, which has no revision",
            ),
        )
    )
    id: str = Field(
        min_length=1,
        max_length=512,
        pattern=r"^(/[^\s]+|[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?)$",
        description="Hugging Face id (for example Qwen/Qwen3-8B), or an absolute path inside the pod.",
    )
    revision: str | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$",
        description="Branch, tag or commit of the model; resolved to a commit and passed to vLLM.",
    )
    token_secret_ref: KeyReference | None = Field(
        default=None,
        description="Secret key that holds a hub token, for gated models. Used for the config and in the pod.",
    )
    config: ModelConfigSource | None = Field(
        default=None, description="Where config.json is read from; the hub when absent."
    )
    weights: WeightsSource | None = Field(
        default=None, description="Where weights live in the pod; an emptyDir when absent."
    )
    override: SizingOverride | None = Field(
        default=None, description="Sizing numbers for a model type that the operator does not know or gets wrong."
    )
