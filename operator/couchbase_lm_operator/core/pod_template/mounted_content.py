"""What pods read that neither their image nor a commit fixes: weights in volumes, files mounted over others. Pure.

LMCache's keys name the model's path and not what lies there, and a mount can stand where the engine's own code was.
So every mount of users is part of the key prefix, by the source of its volume. An edit in place cannot be seen: that
is for a warning.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator.core.pod_template import pod_paths

if TYPE_CHECKING:
    from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec
    from couchbase_lm_operator.core.pod_template.workload import Part

# What a hub resolves every branch and tag to.
_COMMIT = re.compile(r"^[0-9a-f]{40}$")
_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
# Empty or made for one pod; and what holds credentials and certificates, which shape no bytes.
_SHAPES_NO_BYTES = frozenset({"emptyDir", "ephemeral", "secret"})
# The same content under the same reference in every namespace; all other sources are a name in one, or a node's.
_SAME_EVERYWHERE = frozenset({"image", "emptyDir"})


def is_commit(revision: str) -> bool:
    """Say whether a revision names one state of a repository for ever."""
    return bool(_COMMIT.match(revision))


def is_digest(reference: str) -> bool:
    """Say whether a reference names one image for ever."""
    return bool(_DIGEST.search(reference))


def mounted_content(spec: LMCacheCouchbaseSpec, revision: str, namespace_uid: str) -> dict[str, Any]:
    """Return what counts for the key prefix; nothing where nothing is mounted.

    ``revision`` is the resolved one of the model. A claim that only keeps the downloads of a commit does not count:
    the hub's client looks for them under the commit, so that blue and green may have a claim each. ``namespace_uid``
    counts where a source is known by name in its namespace, or cluster, only.
    """
    sources = _sources(spec)
    mounts = [{**mount, "source": sources.get(mount["name"])} for mount in spec.pod_template.volume_mounts]
    claim = _claim(spec)
    if claim is not None and not is_commit(revision):
        mounts.append({"mountPath": pod_paths.WEIGHTS, "source": claim})
    is_local = any(not _SAME_EVERYWHERE.issuperset(mount["source"] or ()) for mount in mounts)
    found = {"mounts": mounts, "namespace": namespace_uid if is_local else None}
    return {name: value for name, value in found.items() if value}


def unfixed_weights(spec: LMCacheCouchbaseSpec) -> str | None:
    """Return what the model's path leads to when something else may come to lie there unseen, as field and why."""
    sources = _sources(spec)
    found = ((name, _why_unfixed(sources.get(name) or {})) for name in _weights_volumes(spec))
    return next((f"{_field(name)}, {why}" for name, why in found if why), None)


def unfixed_mounts(spec: LMCacheCouchbaseSpec) -> list[str]:
    """Return the volumes of users, besides those of weights, that mount what can be edited without another key."""
    sources, weights = _sources(spec), _weights_volumes(spec)
    mounted = dict.fromkeys(str(mount["name"]) for mount in spec.pod_template.volume_mounts)
    shaping = {name: sources.get(name) or {} for name in mounted if name not in weights}
    return [name for name, source in shaping.items() if _SHAPES_NO_BYTES.isdisjoint(source) and _why_unfixed(source)]


def _weights_volumes(spec: LMCacheCouchbaseSpec) -> list[str]:
    """Return the volumes that the model's path leads into, nearest first; none for a model of a hub."""
    if not spec.model.id.startswith("/"):
        return []
    mounts = [(_folder(mount.get("mountPath", "")), str(mount["name"])) for mount in spec.pod_template.volume_mounts]
    if _claim(spec) is not None:
        mounts.append((_folder(pod_paths.WEIGHTS), pod_paths.VOLUME_WEIGHTS))
    path = _folder(spec.model.id)
    # of the mounts above the path the deepest hides the others
    above = sorted(mount for mount in mounts if path.startswith(mount[0]))[-1:]
    inside = [mount for mount in mounts if mount[0].startswith(path)]
    return [name for _, name in [*above, *inside]]


def _field(volume: str) -> str:
    own = "spec.model.weights.pvc"  # no volume of users may be called as the operator's
    return own if volume == pod_paths.VOLUME_WEIGHTS else f"spec.podTemplate.volumes ({volume})"


def _why_unfixed(source: Part) -> str | None:
    if "image" in source:
        is_fixed = is_digest(str((source["image"] or {}).get("reference", "")))
        return None if is_fixed else "an image whose tag can be moved (a digest cannot)"
    return None if "emptyDir" in source else "whose content can be edited in place"


def _claim(spec: LMCacheCouchbaseSpec) -> Part | None:
    weights = spec.model.weights
    if weights is None or weights.pvc is None:
        return None
    return {"persistentVolumeClaim": {"claimName": weights.pvc.claim_name}}


def _sources(spec: LMCacheCouchbaseSpec) -> dict[str, Part]:
    """Return what each volume is made of, by name: those of users, and the claim of the weights."""
    found = {
        str(volume["name"]): {kind: source for kind, source in volume.items() if kind != "name"}
        for volume in spec.pod_template.volumes
    }
    claim = _claim(spec)
    return found if claim is None else {**found, pod_paths.VOLUME_WEIGHTS: claim}


def _folder(path: object) -> str:
    """Return a path that every path in it, and itself, starts with."""
    return posixpath.normpath("/" + str(path).lstrip("/")).rstrip("/") + "/"
