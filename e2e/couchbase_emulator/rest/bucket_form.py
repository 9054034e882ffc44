"""Bucket parameters: reading, checking, defaults, quota arithmetic (ns_server `menelaus_web_buckets`)."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from e2e.couchbase_emulator.model.bucket import MIB, Bucket, BucketSettings
from e2e.couchbase_emulator.model.cluster import Cluster

_NAME = re.compile(r"[A-Za-z0-9_.%-]{1,100}")
_RESERVED_PREFIXES = ("_users.couch.", "_replicator.couch.")
_MAX_TTL_SECONDS = 2**31 - 1
_MIN_QUOTA_MIB = 100
_MIN_MAGMA_QUOTA_MIB = 1024
_EVICTION = {"membase": ("valueOnly", "fullEviction"), "ephemeral": ("noEviction", "nruEviction")}


class BucketForm:
    """The parameters of a create or edit request; collects an error per field."""

    def __init__(self, cluster: Cluster, form: Mapping[str, str], existing: Bucket | None) -> None:
        self._cluster = cluster
        self._form = form
        self._existing = existing
        self.errors: dict[str, str] = {}

    def settings(self) -> BucketSettings:
        """Settings as asked for; only meaningful while `errors` is empty."""
        current = self._existing.settings if self._existing else self._defaults()
        settings = replace(
            current,
            ram_quota_mib=self._quota(current),
            replicas=self._number("replicaNumber", current.replicas, 0, 3, "The replica number must be 0 to 3"),
            eviction_policy=self._eviction(current),
            flush_enabled=self._flag("flushEnabled", current.flush_enabled),
            durability_min_level=self._durability(current),
            rank=self._number("rank", current.rank, 0, 1000, "The value of rank must be in the range 0 to 1000"),
            max_ttl_seconds=self._max_ttl(current),
            compression_mode=self._compression(current),
            conflict_resolution_type=self._conflict_resolution(current),
            vbuckets=self._vbuckets(current),
        )
        settings.low_watermark_percent, settings.high_watermark_percent = self._watermarks(current)
        self._check_combination(settings)
        return settings

    def summaries(self, settings: BucketSettings) -> dict[str, Any]:
        """Memory and disk after the change, in bytes for the whole cluster; adds the error for too large a quota."""
        nodes = len(self._cluster.members)
        name = self._existing.name if self._existing else None
        others = self._cluster.assigned_mib(without=name) * MIB * nodes
        total = self._cluster.memory_quota_mib * MIB * nodes
        this_alloc = settings.ram_quota_mib * MIB * nodes
        used = sum(self._existing.documents.used_bytes) if self._existing else 0
        free = total - others - this_alloc
        if free < 0:
            self.errors.setdefault("ramQuota", "RAM quota specified is too large to be provisioned into this cluster.")
        if self._existing and self._cluster.options.major_minor < (7, 6) and this_alloc < used:
            self.errors.setdefault("ramQuota", "RAM quota cannot be set below current usage.")
        disk = 1 << 40
        return {
            "ramSummary": {
                "total": total,
                "otherBuckets": others,
                "nodesCount": nodes,
                "perNodeMegs": settings.ram_quota_mib,
                "thisAlloc": this_alloc,
                "thisUsed": used,
                "free": free,
            },
            "hddSummary": {"total": disk, "otherData": 0, "otherBuckets": 0, "thisUsed": 0, "free": disk},
        }

    def replica_warning(self, settings: BucketSettings) -> str | None:
        """What the validation mode says about replicas that the cluster cannot place."""
        warnings = []
        if settings.replicas > len(self._cluster.members) - 1:
            warnings.append("you do not have enough data servers or server groups to support this number of replicas")
        if self._existing and settings.replicas != self._existing.settings.replicas:
            warnings.append("changing replica number may require rebalance")
        return f"Warning: {' and '.join(warnings)}." if warnings else None

    def _defaults(self) -> BucketSettings:
        kind = self._form.get("bucketType", "membase")
        kind = "membase" if kind == "couchbase" else kind
        if kind == "memcached" and self._cluster.options.major_minor >= (8, 0):
            self.errors["bucketType"] = "memcached buckets are no longer supported"
        elif kind not in _EVICTION:
            self.errors["bucketType"] = "invalid bucket type"
        kind = kind if kind in _EVICTION else "membase"
        backend = self._backend(kind)
        return BucketSettings(
            name=self._name(),
            bucket_type=kind,
            ram_quota_mib=0,
            eviction_policy="fullEviction" if backend == "magma" else _EVICTION[kind][0],
            storage_backend=backend,
            vbuckets=128 if backend == "magma" and self._cluster.options.major_minor >= (8, 0) else 1024,
        )

    def _name(self) -> str:
        name = self._form.get("name")
        problem = None
        if name is None:
            problem = "Bucket name needs to be specified"
        elif not name:
            problem = "Bucket name cannot be empty"
        elif len(name) > 100:
            problem = "Bucket name cannot exceed 100 characters"
        elif not _NAME.fullmatch(name):
            problem = (
                "Bucket name can only contain characters in range A-Z, a-z, 0-9 as well as underscore, period, dash & "
                "percent. Consult the documentation."
            )
        elif name.startswith("."):
            problem = "Bucket name cannot start with dot."
        elif name.startswith(_RESERVED_PREFIXES):
            problem = "This name is reserved for the internal use."
        elif name.lower() in map(str.lower, self._cluster.buckets):
            problem = "Bucket with given name already exists"
        if problem:
            self.errors["name"] = problem
        return name or ""

    def _backend(self, kind: str) -> str:
        if kind == "ephemeral":
            return "undefined"
        enterprise = self._cluster.options.is_enterprise
        default = "magma" if enterprise and self._cluster.options.major_minor >= (8, 0) else "couchstore"
        backend = self._form.get("storageBackend", default)
        if backend not in ("couchstore", "magma"):
            self.errors["storageBackend"] = "storage backend must be couchstore or magma"
        elif backend == "magma" and not enterprise:
            self.errors["storageBackend"] = "Magma is supported in enterprise edition only"
        return backend

    def _quota(self, current: BucketSettings) -> int:
        text = self._form.get("ramQuota", self._form.get("ramQuotaMB"))
        if text is None and self._existing:
            return current.ram_quota_mib
        if text is None or not text.lstrip("-").isdigit():
            self.errors["ramQuota"] = "The RAM Quota must be specified and must be a positive integer."
            return 0
        quota_mib = int(text)
        if quota_mib < 0:
            self.errors["ramQuota"] = "The RAM Quota cannot be negative."
        elif quota_mib < _MIN_QUOTA_MIB:
            self.errors["ramQuota"] = f"RAM quota cannot be less than {_MIN_QUOTA_MIB} MiB"
        elif current.storage_backend == "magma" and current.vbuckets == 1024 and quota_mib < _MIN_MAGMA_QUOTA_MIB:
            self.errors["ramQuota"] = f"Ram quota for magma must be at least {_MIN_MAGMA_QUOTA_MIB} MiB"
        return max(quota_mib, 0)

    def _number(self, field: str, current: int, low: int, high: int, problem: str) -> int:
        text = self._form.get(field)
        if text is None:
            return current
        if not text.isdigit() or not low <= int(text) <= high:
            self.errors[field] = problem
            return current
        return int(text)

    def _flag(self, field: str, current: bool) -> bool:
        text = self._form.get(field)
        if text is not None and text not in ("0", "1"):
            self.errors[field] = f"{field} can only be 1 or 0"
        return current if text is None else text == "1"

    def _eviction(self, current: BucketSettings) -> str:
        policy = self._form.get("evictionPolicy", current.eviction_policy)
        choices = _EVICTION[current.bucket_type]
        shown = "ephemeral" if current.bucket_type == "ephemeral" else "couchbase"
        if policy not in choices:
            self.errors["evictionPolicy"] = (
                f"Eviction policy must be either '{choices[0]}' or '{choices[1]}' for {shown} buckets"
            )
        elif (
            self._existing
            and policy != current.eviction_policy
            and current.bucket_type == "ephemeral"
            and self._cluster.options.major_minor < (8, 0)
        ):
            self.errors["evictionPolicy"] = "Eviction policy cannot be changed for ephemeral buckets"
        return policy

    def _durability(self, current: BucketSettings) -> str:
        level = self._form.get("durabilityMinLevel", current.durability_min_level)
        levels = ["none", "majority"]
        if current.bucket_type != "ephemeral":
            levels += ["majorityAndPersistActive", "persistToMajority"]
        if level not in levels:
            self.errors["durability_min_level"] = (
                "Durability minimum level must be either 'none' or 'majority' for ephemeral buckets"
                if current.bucket_type == "ephemeral"
                else f"Durability minimum level must be one of {', '.join(map(repr, levels))}"
            )
        return level

    def _max_ttl(self, current: BucketSettings) -> int:
        if "maxTTL" in self._form and not self._cluster.options.is_enterprise:
            self.errors["maxTTL"] = "Max TTL is supported in enterprise edition only"
            return current.max_ttl_seconds
        problem = f"Max TTL must be an integer between 0 and {_MAX_TTL_SECONDS}"
        return self._number("maxTTL", current.max_ttl_seconds, 0, _MAX_TTL_SECONDS, problem)

    def _compression(self, current: BucketSettings) -> str:
        mode = self._form.get("compressionMode")
        if mode is None:
            return current.compression_mode
        if not self._cluster.options.is_enterprise:
            self.errors["compressionMode"] = "Compression mode is supported in enterprise edition only"
        elif mode not in ("off", "passive", "active"):
            self.errors["compressionMode"] = "compressionMode can be set to 'off', 'passive' or 'active'"
        return mode

    def _conflict_resolution(self, current: BucketSettings) -> str:
        kind = self._form.get("conflictResolutionType")
        if kind is None:
            return current.conflict_resolution_type
        if self._existing:
            self.errors["conflictResolutionType"] = "Conflict resolution type not allowed in update bucket"
        elif kind not in ("seqno", "lww", "custom"):
            self.errors["conflictResolutionType"] = "Conflict resolution type must be 'seqno' or 'lww' or 'custom'"
        elif kind != "seqno" and not self._cluster.options.is_enterprise:
            self.errors["conflictResolutionType"] = (
                f"Conflict resolution type '{kind}' is supported only in enterprise edition"
            )
        return kind

    def _vbuckets(self, current: BucketSettings) -> int:
        text = self._form.get("numVBuckets")
        if text is None:
            return current.vbuckets
        allowed = ("128", "1024") if current.storage_backend == "magma" else ("1024",)
        if self._existing and text != str(current.vbuckets):
            self.errors["numVBuckets"] = "Number of vbuckets cannot be modified"
        elif self._cluster.options.major_minor < (8, 0):
            self.errors["numVBuckets"] = "Argument is not supported until cluster is fully 8.0"
        elif text not in allowed:
            self.errors["numVBuckets"] = "Number of vbuckets must be 128 or 1024 (magma) or 1024"
        return int(text) if text in ("128", "1024") else current.vbuckets

    def _watermarks(self, current: BucketSettings) -> tuple[int, int]:
        low = self._number(
            "memoryLowWatermark", current.low_watermark_percent, 50, 89,
            "The value of memoryLowWatermark must be in the range 50 to 89 inclusive",
        )  # fmt: skip
        high = self._number(
            "memoryHighWatermark", current.high_watermark_percent, 51, 90,
            "The value of memoryHighWatermark must be in the range 51 to 90 inclusive",
        )  # fmt: skip
        if low >= high:
            self.errors["memoryLowWatermark"] = f"memoryLowWatermark ({low}) must be less than ({high})"
        return low, high

    def _check_combination(self, settings: BucketSettings) -> None:
        if settings.bucket_type == "ephemeral" and "replicaIndex" in self._form:
            self.errors["replicaIndex"] = "replicaIndex not supported for ephemeral buckets"
        if settings.durability_min_level == "none" or settings.replicas == 0:
            return
        if settings.replicas == 3:
            self.errors["durability_min_level"] = "Durability minimum level cannot be specified with 3 replicas"
        elif len(self._cluster.members) == 1:
            self.errors["durability_min_level"] = "You do not have enough data servers to support this durability level"
