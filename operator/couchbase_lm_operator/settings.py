"""The operator's own settings, read once from the environment (prefix ``LMCB_``)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AliasChoices, Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from couchbase_lm_operator.errors import SettingsError

GIBIBYTE = 1 << 30


class Settings(BaseSettings):
    """Everything an installation decides about the operator. Sizes are bytes, durations seconds."""

    model_config = SettingsConfigDict(env_prefix="LMCB_", frozen=True, extra="forbid")

    kubeconfig: Path | None = Field(
        default=None,
        validation_alias=AliasChoices("LMCB_KUBECONFIG", "KUBECONFIG", "kubeconfig"),
        description="Kubeconfig file; the pod's service account when absent.",
    )
    namespaces: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Watched namespaces, separated by commas; all of them when empty."
    )
    operator_image: str = Field(
        default="", description="Image of this operator: the first init container of the pods copies wheels from it."
    )
    engine_image: str = Field(default="", description="Default engine image; the tested one when empty.")
    engine_image_cpu: str = Field(default="", description="Default engine image of vendor CPU.")
    max_l1_bytes: int = Field(default=32 * GIBIBYTE, ge=GIBIBYTE, description="Cap of a worked-out L1 size.")
    allow_host_path: bool = Field(default=False, description="Whether pod templates may use hostPath volumes.")
    workers: int = Field(default=4, ge=1, le=64, description="Passes that run at the same time.")
    provisioning_per_cluster: int = Field(
        default=2, ge=1, le=16, description="Visits to the same Couchbase cluster at the same time."
    )
    http_host: str = Field(default="0.0.0.0", description="Address of /healthz and /metrics.")  # noqa: S104 - a pod
    http_port: int = Field(default=8080, ge=0, le=65535, description="Port of /healthz and /metrics; 0 picks one.")
    resync_seconds: float = Field(default=600.0, gt=0, description="Look again at a steady resource, +- a tenth.")
    reference_poll_seconds: float = Field(
        default=5.0, gt=0, description="Look whether a Secret or ConfigMap that a resource uses changed or went."
    )
    cache_probe_seconds: float = Field(default=30.0, gt=0, description="Log in at Couchbase as the engines' user.")
    sweep_seconds: float = Field(default=60.0, gt=0, description="Compare all resources with what events told.")
    log_format: Literal["plain", "json"] = Field(default="plain", description="Form of the log lines.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Lowest level logged.")

    @field_validator("namespaces", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value


def load() -> Settings:
    """Return the settings of this process.

    Raises:
        SettingsError: a variable is wrong; the message names each.
    """
    try:
        return Settings()
    except ValidationError as error:
        problems = "; ".join(f"LMCB_{'_'.join(map(str, e['loc'])).upper()}: {e['msg']}" for e in error.errors())
        raise SettingsError(f"the operator's settings are wrong: {problems}") from error
