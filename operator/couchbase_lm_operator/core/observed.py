"""Everything one pass knows of the world: filled once by the gatherer, read by all later steps.

Nothing after the gatherer reads the world, so a pass decides on one consistent picture. A read that
failed is data too: it is kept as ``Unread`` with a reason, and only the checks decide what it means.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator.core.couchbase_state import CouchbaseState, CouchbaseTrouble

if TYPE_CHECKING:
    # its library belongs to those who read, not to everybody who knows of this picture
    from couchbase_lm_operator.core.adapter_reading import AdapterReading

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Missing:
    """A referenced object, or a key in it, that does not exist; ``what`` names it for people."""

    what: str


@dataclass(frozen=True)
class Unread:
    """A read that failed for another reason than absence; ``detail`` is a sentence without secrets.

    ``is_outage`` says that nobody answered who could have: an earlier answer still holds.
    """

    what: str
    detail: str
    is_outage: bool = False


@dataclass(frozen=True)
class SecretValue:
    """The wanted keys of a Secret; kept out of every repr."""

    name: str
    resource_version: str
    values: dict[str, str] = field(repr=False)


@dataclass(frozen=True)
class ModelConfig:
    """A model's config.json as it was found; ``asked`` is the question to the hub that gave it, else ""."""

    content: dict[str, Any]
    digest: str
    revision: str
    source: str
    asked: str = ""


@dataclass(frozen=True)
class MalformedModelConfig:
    """A config.json that is not a JSON object, or too large; ``detail`` says where and why."""

    source: str
    detail: str


@dataclass(frozen=True)
class PodState:
    """One pod of the workload, reduced to what status and readiness tell.

    ``metrics_port`` is that of the adapter at ``address``; 0 where it has none that may be asked.
    """

    name: str
    phase: str
    is_ready: bool
    is_deleting: bool
    template_hash: str
    waiting_reason: str
    waiting_message: str
    last_exit: str
    restart_count: int
    unschedulable_message: str
    address: str = ""
    metrics_port: int = 0


@dataclass(frozen=True)
class PodReadings:
    """What ready pods of the template ``revision`` told of themselves; ``asked`` is how many should have answered."""

    revision: str
    asked: int
    answers: tuple[AdapterReading, ...]


@dataclass(frozen=True)
class Claim:
    """A resource that names a bucket or user: two resources never share what one of them owns.

    It holds what its status records as made for it; what is only named is a wish.
    """

    namespace: str
    name: str
    uid: str
    created: str
    bucket: str
    user: str
    owns_bucket: bool
    holds_bucket: bool = False
    holds_user: bool = False


@dataclass(frozen=True)
class Observed:
    """One frozen picture of a resource and all that it refers to.

    ``couchbase`` is None when no read was tried (no credentials yet). ``children`` maps
    ``(kind, name)`` to the live object. ``is_partial`` forbids pruning. ``readings`` is None when no pod was
    to be asked.
    """

    resource: Manifest
    namespace_uid: str
    model_config: ModelConfig | MalformedModelConfig | Missing | Unread
    admin_credentials: SecretValue | Missing | Unread | None
    user_credentials: SecretValue | Missing | Unread | None
    referenced: tuple[Missing | Unread, ...]
    ca_pem: str | Missing | Unread | None
    couchbase: CouchbaseState | CouchbaseTrouble | None
    children: dict[tuple[str, str], Manifest]
    pods: tuple[PodState, ...]
    claims: tuple[Claim, ...]
    is_partial: bool = False
    readings: PodReadings | None = None

    @property
    def name(self) -> str:
        """Return the resource's name."""
        return str(self.resource["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Return the resource's namespace."""
        return str(self.resource["metadata"]["namespace"])

    @property
    def uid(self) -> str:
        """Return the resource's UID."""
        return str(self.resource["metadata"]["uid"])

    @property
    def generation(self) -> int:
        """Return the generation of the spec that this picture shows."""
        return int(self.resource["metadata"].get("generation", 0))

    @property
    def status(self) -> dict[str, Any]:
        """Return the status as the last pass left it."""
        return dict(self.resource.get("status") or {})

    @property
    def is_deleting(self) -> bool:
        """Say whether the resource is being deleted."""
        return bool(self.resource["metadata"].get("deletionTimestamp"))
