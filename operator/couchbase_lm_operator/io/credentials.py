"""The Secret with the user name and password that the engines use: generated once, never rotated.

Couchbase keeps only a hash, so this Secret is the one place that knows the password. Losing it is no harm:
the next pass generates another and writes the Couchbase user again.
"""

from __future__ import annotations

import base64
import binascii
import secrets
import string
from typing import TYPE_CHECKING

from couchbase_lm_operator import names
from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.children.children import owner_reference
from couchbase_lm_operator.core.verdict import Refuse
from couchbase_lm_operator.io.couchbase.access import Credentials

if TYPE_CHECKING:
    from couchbase_lm_operator.core.observed import Manifest
    from couchbase_lm_operator.io.cluster import Cluster

USERNAME_KEY = "username"
PASSWORD_KEY = "password"  # noqa: S105 - the key's name
# The longest minimum that Couchbase's password policy can ask for, so that a password can be made, and pods
# can start, before the cluster was ever reached.
PASSWORD_LENGTH = 100
_ALPHABET = string.ascii_letters + string.digits
# One of each kind that a policy can ask for; none of them needs quoting in a file or a form.
_KINDS = (string.ascii_lowercase, string.ascii_uppercase, string.digits, "-_")


def generate_password() -> str:
    """Return a password that meets every password policy Couchbase can have."""
    characters = [secrets.choice(kind) for kind in _KINDS]
    characters += [secrets.choice(_ALPHABET) for _ in range(PASSWORD_LENGTH - len(characters))]
    secrets.SystemRandom().shuffle(characters)
    return "".join(characters)


async def ensure(cluster: Cluster, resource: Manifest, secret_name: str, username: str) -> Credentials | Refuse:
    """Return the credentials in the generated Secret, which is created or completed when needed.

    An existing password is kept.

    Raises:
        ClusterError: the API server refused or did not answer.
    """
    namespace = resource["metadata"]["namespace"]
    live = await cluster.get("Secret", namespace, secret_name)
    if live is None:
        made = Credentials(username, generate_password())
        if await cluster.create(secret_manifest(resource, secret_name, made)) is not None:
            return made
        live = await cluster.get("Secret", namespace, secret_name)
    if live is None or not _is_ours(live, resource):
        return Refuse(
            Reason.CHILD_NOT_OURS,
            f"Secret {secret_name!r} exists and does not belong to this resource: remove or rename it.",
        )
    kept = Credentials(username, value(live, PASSWORD_KEY) or generate_password())
    if value(live, PASSWORD_KEY) != kept.password or value(live, USERNAME_KEY) != username:
        await cluster.apply(secret_manifest(resource, secret_name, kept))
    return kept


def read(live: Manifest | None) -> Credentials | None:
    """Return the credentials in a Secret, or None when a key is missing or unreadable."""
    username, password = value(live, USERNAME_KEY), value(live, PASSWORD_KEY)
    return Credentials(username, password) if username and password else None


def value(live: Manifest | None, key: str) -> str:
    """Return one key of a Secret as text, or "" when it is missing or no text."""
    encoded = ((live or {}).get("data") or {}).get(key, "")
    try:
        return base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, TypeError):
        return ""


def secret_manifest(resource: Manifest, secret_name: str, credentials: Credentials) -> Manifest:
    """Return the Secret as it is written: owned by the resource, so that it goes with it."""
    metadata = resource["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": secret_name,
            "namespace": metadata["namespace"],
            "labels": names.child_labels(metadata["name"]),
            "ownerReferences": [owner_reference(resource)],
        },
        "type": "Opaque",
        "data": {
            USERNAME_KEY: base64.b64encode(credentials.username.encode()).decode(),
            PASSWORD_KEY: base64.b64encode(credentials.password.encode()).decode(),
        },
    }


def _is_ours(live: Manifest, resource: Manifest) -> bool:
    owners = live["metadata"].get("ownerReferences") or []
    return any(owner.get("uid") == resource["metadata"]["uid"] for owner in owners)
