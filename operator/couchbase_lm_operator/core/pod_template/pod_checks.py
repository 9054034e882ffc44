"""What ``spec.podTemplate`` may add to the pods. Pure; all else is for the API server's dry run."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from couchbase_lm_operator import names
from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.pod_template import pod_paths
from couchbase_lm_operator.core.verdict import Refuse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from couchbase_lm_operator.api.spec_pod import PodTemplateSpec
    from couchbase_lm_operator.core.pod_template.workload import Part

_VOLUME_TYPES = frozenset(
    {"persistentVolumeClaim", "configMap", "secret", "emptyDir", "ephemeral", "csi", "image", "hostPath"}
)


def refused_pod_template(template: PodTemplateSpec, *, allow_host_path: bool) -> Refuse | None:
    """Return why the pod template cannot be used, or None."""
    metadata = template.metadata
    labels = _refused_label(metadata.labels, "labels") if metadata else None
    annotations = _refused_label(metadata.annotations, "annotations") if metadata else None
    return (
        labels
        or annotations
        or _refused_volume(template.volumes, allow_host_path=allow_host_path)
        or _refused_mount(template.volume_mounts)
    )


def _refused_label(entries: Iterable[str], kind: str) -> Refuse | None:
    owned = {names.LABEL_NAME, names.LABEL_INSTANCE, names.LABEL_MANAGED_BY}
    for key in entries:
        if key in owned or key.startswith(f"{names.GROUP}/"):
            return Refuse(
                Reason.LABEL_NOT_ALLOWED,
                f"spec.podTemplate.metadata.{kind} sets {key}, which is the operator's: remove it.",
            )
    return None


def _refused_volume(volumes: Iterable[Part], *, allow_host_path: bool) -> Refuse | None:
    for position, volume in enumerate(volumes):
        field = f"spec.podTemplate.volumes[{position}]"
        name = volume["name"]
        if name in pod_paths.OWN_VOLUMES:
            return Refuse(
                Reason.VOLUME_NOT_ALLOWED, f"{field} is called {name!r} like one of the operator's: rename it."
            )
        kinds = set(volume) - {"name"}
        if "hostPath" in kinds and not allow_host_path:
            return Refuse(
                Reason.HOST_PATH_NOT_ALLOWED,
                f"{field} {name!r} is a hostPath, which this operator does not allow: use another kind of volume, or "
                "ask the administrator to set allowHostPath.",
            )
        if not kinds <= _VOLUME_TYPES:
            return Refuse(
                Reason.VOLUME_NOT_ALLOWED,
                f"{field} {name!r} is a {min(kinds - _VOLUME_TYPES)}; use one of {', '.join(sorted(_VOLUME_TYPES))}.",
            )
    return None


def _refused_mount(mounts: Iterable[Part]) -> Refuse | None:
    for position, mount in enumerate(mounts):
        path = posixpath.normpath("/" + str(mount.get("mountPath", "")).lstrip("/"))
        field = f"spec.podTemplate.volumeMounts[{position}]"
        if mount["name"] in pod_paths.OWN_VOLUMES:
            return Refuse(
                Reason.VOLUME_NOT_ALLOWED, f"{field} mounts {mount['name']!r}, which is the operator's volume."
            )
        taken = next((own for own in pod_paths.OWN_MOUNTS if _is_at_or_above(path, own)), None)
        if taken is not None:
            return Refuse(Reason.VOLUME_NOT_ALLOWED, f"{field}.mountPath {path!r} hides {taken}: mount it elsewhere.")
    return None


def _is_at_or_above(path: str, own: str) -> bool:
    return path == own or own.startswith(path.rstrip("/") + "/")
