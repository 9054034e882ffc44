"""The cluster that a resource names, with what was read of its Secrets and its CA."""

from __future__ import annotations

from typing import TYPE_CHECKING

from couchbase_lm_operator.core.observed import SecretValue
from couchbase_lm_operator.io.couchbase.access import Credentials, TlsTrust
from couchbase_lm_operator.io.couchbase.cluster import CouchbaseCluster

if TYPE_CHECKING:
    from couchbase_lm_operator.api.spec_couchbase import CouchbaseSpec
    from couchbase_lm_operator.core.couchbase_state import CouchbaseGoal
    from couchbase_lm_operator.core.observed import Missing, Unread
    from couchbase_lm_operator.io.addresses import AddressGuard


def named_cluster(
    spec: CouchbaseSpec,
    goal: CouchbaseGoal,
    *,
    admin: SecretValue | Missing | Unread | None,
    user: Credentials | None,
    ca_pem: str | Missing | Unread | None,
    guard: AddressGuard,
) -> CouchbaseCluster:
    """Return access to the cluster of ``goal``; what could not be read is left out, so look at it before."""
    return CouchbaseCluster(
        goal=goal,
        admin=login(admin),
        user=user,
        trust=TlsTrust(
            ca_pem if isinstance(ca_pem, str) else None,
            skip_verify=spec.tls.insecure_skip_verify if spec.tls else False,
        ),
        guard=guard,
    )


def login(secret: SecretValue | Missing | Unread | None) -> Credentials | None:
    """Return the user name and password in a Secret, or None when it could not be read."""
    if not isinstance(secret, SecretValue):
        return None
    return Credentials(secret.values["username"], secret.values["password"])
