"""Where things lie in the pod, and the environment that both containers share. Pure.

The root filesystem is read-only and the user has no entry in passwd: every place that libraries write to
is on an emptyDir, and USER is set (without it vLLM fails at import).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from couchbase_lm_operator.core.pod_template.workload import Part

if TYPE_CHECKING:
    from collections.abc import Iterable

    from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the mount point of POSIX shared memory, not a file we create
SCRATCH = "/scratch"
TEMPORARY = "/tmp"  # noqa: S108 - an emptyDir of the pod
WEIGHTS = "/weights"
CREDENTIALS = "/etc/lmcache-couchbase/credentials"
CERTIFICATES = "/etc/lmcache-couchbase/ca"
PLUGIN = "/plugin"
DEVICE = "/device"
OWN_MOUNTS = (SHARED_MEMORY, SCRATCH, TEMPORARY, WEIGHTS, "/etc/lmcache-couchbase", PLUGIN, DEVICE)

VOLUME_SHARED_MEMORY = "shm"
VOLUME_SCRATCH = "scratch"
VOLUME_TEMPORARY = "tmp"
VOLUME_WEIGHTS = "weights"
VOLUME_CREDENTIALS = "couchbase-credentials"
VOLUME_CERTIFICATES = "couchbase-ca"
VOLUME_PLUGIN = "plugin"
VOLUME_DEVICE = "device-backend"
OWN_VOLUMES = (
    VOLUME_SHARED_MEMORY,
    VOLUME_SCRATCH,
    VOLUME_TEMPORARY,
    VOLUME_WEIGHTS,
    VOLUME_CREDENTIALS,
    VOLUME_CERTIFICATES,
    VOLUME_PLUGIN,
    VOLUME_DEVICE,
)


def shared_environment() -> list[Part]:
    """Return the variables of both vLLM and the LMCache server."""
    values = {
        "HOME": SCRATCH,
        "USER": "lmcache",
        "TMPDIR": TEMPORARY,
        "XDG_CACHE_HOME": f"{SCRATCH}/cache",
        "PYTHONDONTWRITEBYTECODE": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "LMCACHE_TRACK_USAGE": "false",
        "LMCACHE_DISABLE_BANNER": "1",
    }
    return [{"name": name, "value": value} for name, value in values.items()]


def merged_environment(ours: Iterable[Part], users: Iterable[Part]) -> tuple[Part, ...]:
    """Return our variables, then the user's, which win where the checks allow the name."""
    users = list(users)
    taken = {entry["name"] for entry in users}
    return (*(entry for entry in ours if entry["name"] not in taken), *users)


def needs_weights_volume(spec: LMCacheCouchbaseSpec) -> bool:
    """Say whether weights are downloaded or kept in a claim: a path inside the image needs no volume."""
    has_claim = spec.model.weights is not None and spec.model.weights.pvc is not None
    return has_claim or not spec.model.id.startswith("/")


def hub_folder(spec: LMCacheCouchbaseSpec) -> str:
    """Return where the hub client keeps what it downloads."""
    return WEIGHTS if needs_weights_volume(spec) else f"{SCRATCH}/huggingface"
