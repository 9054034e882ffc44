"""A bucket: settings, scopes and collections, documents."""

import uuid
from dataclasses import dataclass, field

from e2e.couchbase_emulator.model.clock import Clock
from e2e.couchbase_emulator.model.documents import DocumentStore, StoredDocument
from e2e.couchbase_emulator.model.manifest import Manifest

MIB = 1024 * 1024


@dataclass
class BucketSettings:
    """Settings as REST names them, in the emulator's units."""

    name: str
    bucket_type: str  # "membase" or "ephemeral"
    ram_quota_mib: int  # per node
    replicas: int = 1
    eviction_policy: str = "valueOnly"
    storage_backend: str = "couchstore"
    vbuckets: int = 1024
    max_ttl_seconds: int = 0
    compression_mode: str = "passive"
    flush_enabled: bool = False
    durability_min_level: str = "none"
    rank: int = 0
    conflict_resolution_type: str = "seqno"
    low_watermark_percent: int = 75
    high_watermark_percent: int = 85


@dataclass
class RangeScan:
    """A scan of one vBucket that was begun: what is still to be sent, in the order of the keys."""

    vbucket: int
    key_only: bool
    remaining: list[tuple[bytes, StoredDocument]]  # keys without collection prefix
    begun_at_seconds: float


@dataclass
class Bucket:
    """One bucket of the cluster.

    Unix times of the host tell when nodes get vBuckets of it and when its warm-up ends.
    """

    settings: BucketSettings
    documents: DocumentStore
    manifest: Manifest = field(default_factory=Manifest)
    uuid: str = field(default_factory=lambda: uuid.uuid4().hex)
    # Manifests of nodes that have not heard of the current one yet.
    outdated_manifests: dict[int, Manifest] = field(default_factory=dict)
    range_scans: dict[bytes, RangeScan] = field(default_factory=dict)  # by identifier
    mapped_at_seconds: float = 0.0
    ready_at_seconds: float = 0.0

    @property
    def name(self) -> str:
        """Name of the bucket."""
        return self.settings.name

    def manifest_on(self, node: int) -> Manifest:
        """The manifest as a data node knows it."""
        return self.outdated_manifests.get(node, self.manifest)

    def apply_settings(self) -> None:
        """Bring the document store in line with changed settings."""
        settings, documents = self.settings, self.documents
        documents.quota_bytes = settings.ram_quota_mib * MIB
        documents.evicts_documents = settings.eviction_policy == "nruEviction"
        documents.low_watermark_share = settings.low_watermark_percent / 100
        documents.high_watermark_share = settings.high_watermark_percent / 100


def vbucket_owners(vbuckets: int, members: list[int]) -> list[int]:
    """Node of every vBucket: equal contiguous shares for the members of the cluster."""
    return [members[vbucket * len(members) // vbuckets] for vbucket in range(vbuckets)]


def make_bucket(settings: BucketSettings, *, members: list[int], node_count: int, clock: Clock) -> Bucket:
    """A new empty bucket spread over the members; `node_count` includes nodes that left."""
    documents = DocumentStore(
        clock=clock,
        owners=vbucket_owners(settings.vbuckets, members),
        node_count=node_count,
        quota_bytes=settings.ram_quota_mib * MIB,
        evicts_documents=settings.eviction_policy == "nruEviction",
        # Buckets with a disk eject values instead of refusing writes; the emulator does not model ejection.
        limited_by_memory=settings.bucket_type == "ephemeral",
    )
    bucket = Bucket(settings, documents)
    bucket.apply_settings()
    return bucket
