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
    sources = _sources(spec.pod_template.volumes)
    mounts = [{**mount, "source": sources.get(mount["name"])} for mount in spec.pod_template.volume_mounts]
    claim = _claim(spec)
    if claim is not None and not is_commit(revision):
        mounts.append({"mountPath": pod_paths.WEIGHTS, "source": claim})
    is_local = any(not _SAME_EVERYWHERE.issuperset(mount["source"] or ()) for mount in mounts)
    found = {"mounts": mounts, "namespace": namespace_uid if is_local else None}
    return {name: value for name, value in found.items() if value}


def unfixed_weights(spec: LMCacheCouchbaseSpec) -> str | None:
    """Return what the model's path leads to when something else may come to lie there unseen, as field and why."""
    if not spec.model.id.startswith("/"):
        return None
    sources = {f"spec.podTemplate.volumes ({name})": each for name, each in _sources(spec.pod_template.volumes).items()}
    mounts = [
        (_folder(mount.get("mountPath", "")), f"spec.podTemplate.volumes ({mount['name']})")
        for mount in spec.pod_template.volume_mounts
    ]
    claim = _claim(spec)
    if claim is not None:
        sources["spec.model.weights.pvc"] = claim
        mounts.append((_folder(pod_paths.WEIGHTS), "spec.model.weights.pvc"))
    path = _folder(spec.model.id)
    # of the mounts above the path the deepest hides the others
    above = sorted(mount for mount in mounts if path.startswith(mount[0]))[-1:]
    inside = [mount for mount in mounts if mount[0].startswith(path)]
    told = (_told(field, sources.get(field) or {}) for _, field in [*above, *inside])
    return next((each for each in told if each), None)


def _told(field: str, source: Part) -> str | None:
    if "image" in source:
        is_fixed = is_digest(str((source["image"] or {}).get("reference", "")))
        return None if is_fixed else f"{field}, an image whose tag can be moved (a digest cannot)"
    return None if "emptyDir" in source else f"{field}, whose content can be edited in place"


def _claim(spec: LMCacheCouchbaseSpec) -> Part | None:
    weights = spec.model.weights
    if weights is None or weights.pvc is None:
        return None
    return {"persistentVolumeClaim": {"claimName": weights.pvc.claim_name}}


def _sources(volumes: list[Part]) -> dict[str, Part]:
    return {volume["name"]: {kind: source for kind, source in volume.items() if kind != "name"} for volume in volumes}


def _folder(path: object) -> str:
    """Return a path that every path in it, and itself, starts with."""
    return posixpath.normpath("/" + str(path).lstrip("/")).rstrip("/") + "/"
