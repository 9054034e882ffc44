"""Every name, label, annotation and port that the operator puts on something. Pure.

Names are deterministic: a pass that starts from nothing finds what an earlier one made.
"""

from __future__ import annotations

import hashlib
import re

GROUP = "lmcache-couchbase.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "LMCacheCouchbase"
PLURAL = "lmcachecouchbases"
SINGULAR = "lmcachecouchbase"
SHORT_NAME = "lmcb"
CATEGORIES = ("couchbase", "lmcache")

FIELD_MANAGER = "lmcache-couchbase-operator"
FINALIZER = f"{GROUP}/reclaim"
NEVER_USED_KOPF_FINALIZER = f"{GROUP}/never-used"

LABEL_NAME = "app.kubernetes.io/name"
LABEL_INSTANCE = "app.kubernetes.io/instance"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
APP_NAME = "lmcache-couchbase"

ANNOTATION_RENDERED_HASH = f"{GROUP}/rendered-hash"
ANNOTATION_TEMPLATE_HASH = f"{GROUP}/template-hash"
ANNOTATION_TEMPLATE_REVISION = f"{GROUP}/template-revision"

CONTAINER_VLLM = "vllm"
CONTAINER_LMCACHE = "lmcache"
CONTAINER_WHEELHOUSE = "wheelhouse"
CONTAINER_INSTALL = "install-plugin"
CONTAINER_DEVICE_WHEELHOUSE = "device-wheelhouse"
CONTAINER_DEVICE_INSTALL = "install-device"

LMCACHE_QUEUE_PORT = 6555
LMCACHE_HTTP_PORT = 18080
ADAPTER_METRICS_PORT = 18081
PORT_METRICS = "metrics"

_MAX_LABEL_LENGTH = 63
_MAX_BUCKET_NAME_BYTES = 100
_MAX_USER_NAME_LENGTH = 128
_MAX_SCOPE_NAME_LENGTH = 251


def selector_labels(name: str) -> dict[str, str]:
    """Return the immutable labels by which a Deployment or Service finds the pods of CR ``name``."""
    return {LABEL_NAME: APP_NAME, LABEL_INSTANCE: name}


def child_labels(name: str) -> dict[str, str]:
    """Return the labels that every child of CR ``name`` carries."""
    return {**selector_labels(name), LABEL_MANAGED_BY: FIELD_MANAGER}


def cluster_id(namespace_uid: str) -> str:
    """Return the short cluster id: eight hex digits of the hash of the CR's namespace UID.

    A namespace UID is unique across clusters and readable without cluster-wide rights.
    """
    return hashlib.sha256(namespace_uid.encode()).hexdigest()[:8]


def credentials_secret(name: str) -> str:
    """Return the name of the generated credentials Secret of CR ``name``."""
    return shortened(f"{name}-couchbase", _MAX_LABEL_LENGTH)


def template_revision(name: str, template_hash: str) -> str:
    """Return the name of the ControllerRevision that keeps one rendered pod template."""
    return f"{shortened(name, _MAX_LABEL_LENGTH - 1 - len(template_hash))}-{template_hash}"


def bucket(namespace_uid: str, name: str) -> str:
    """Return the derived bucket name: one bucket per CR, unique across clusters that share a Couchbase."""
    return shortened(f"lmcache-{cluster_id(namespace_uid)}-{name}", _MAX_BUCKET_NAME_BYTES)


def scope(namespace: str) -> str:
    """Return the derived scope name: the namespace, with characters Couchbase refuses replaced."""
    return shortened(_keyspace_name(namespace), _MAX_SCOPE_NAME_LENGTH)


def collection(share_group_or_name: str) -> str:
    """Return the derived collection name: the share group when set, else the CR name."""
    return shortened(_keyspace_name(share_group_or_name), _MAX_SCOPE_NAME_LENGTH)


def user(namespace_uid: str, namespace: str, name: str) -> str:
    """Return the derived Couchbase user name; two CRs never get the same one."""
    return shortened(f"lmcache-{cluster_id(namespace_uid)}-{namespace}-{name}", _MAX_USER_NAME_LENGTH)


def shortened(text: str, limit: int) -> str:
    """Return ``text``, or its start and a hash of the whole when it is longer than ``limit``."""
    if len(text) <= limit:
        return text
    tail = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{text[: limit - len(tail) - 1].rstrip('-.')}-{tail}"


def _keyspace_name(text: str) -> str:
    # Couchbase allows A-Za-z0-9_%- in scope and collection names and refuses a leading _ or %.
    return re.sub(r"[^A-Za-z0-9_%-]", "-", text).lstrip("_%") or "x"
