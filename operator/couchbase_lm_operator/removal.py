"""What happens at Couchbase when a resource is deleted: the user goes; the bucket only when asked for.

With ``reclaimPolicy: Retain`` there is no finalizer: an operator that sees the deletion removes the user,
and a deletion that nobody sees leaves a user whose mark tells what it was. With ``Delete`` the finalizer
holds the resource until bucket and user are gone, or until the effort has been enough: a cluster that is
gone for good must not hold a namespace for ever.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import ValidationError

from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec
from couchbase_lm_operator.core.couchbase import bucket_record
from couchbase_lm_operator.core.couchbase.couchbase_goal import couchbase_goal
from couchbase_lm_operator.core.observed import Missing, SecretValue, Unread
from couchbase_lm_operator.core.verdict import Proceed
from couchbase_lm_operator.io.couchbase.named_cluster import named_cluster
from couchbase_lm_operator.provision_arm import Arm
from couchbase_lm_operator.work_queue import Key

if TYPE_CHECKING:
    from couchbase_lm_operator.core.couchbase_state import BucketRecord
    from couchbase_lm_operator.core.observed import Manifest
    from couchbase_lm_operator.gather import Gatherer
    from couchbase_lm_operator.io.addresses import AddressGuard
    from couchbase_lm_operator.memory import Memory
    from couchbase_lm_operator.visits import Visits

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 600.0
"""How long a removal is tried while Couchbase does not let it happen."""
PATIENCE_WITHOUT_CREDENTIALS_SECONDS = 60.0
"""The same while the administrator's Secret is missing: whoever deletes a namespace deletes it too."""


@dataclass(frozen=True)
class Remains:
    """Something is left at Couchbase: why, and how long to try."""

    why: str
    patience_seconds: float


@dataclass(frozen=True)
class Remover:
    """Removes what deleted resources left at Couchbase."""

    gatherer: Gatherer
    guard: AddressGuard
    visits: Visits

    async def remove(self, resource: Manifest, memory: Memory) -> Remains | None:
        """Work on the removal without waiting long; return None when nothing is left to do.

        Raises:
            ClusterError: the API server did not answer.
        """
        try:
            whole = LMCacheCouchbaseSpec.model_validate(resource.get("spec") or {})
        except ValidationError:
            # an earlier one was used: another CRD may have let this one pass
            is_recorded = bucket_record.from_status((resource.get("status") or {}).get("couchbase") or {}) is not None
            return Remains("the specification cannot be used, so where is not known.", 0.0) if is_recorded else None
        spec = whole.couchbase
        if spec.resolved_provisioning != "RestAPI":
            return None
        namespace = str(resource["metadata"]["namespace"])
        admin = await self.gatherer.admin(namespace, spec)
        if not isinstance(admin, SecretValue):
            what = admin.what if admin else "none are named"
            return Remains(f"no administrator's credentials ({what})", PATIENCE_WITHOUT_CREDENTIALS_SECONDS)
        ca_pem = await self.gatherer.ca(namespace, spec)
        if isinstance(ca_pem, Missing | Unread):
            return Remains(f"no CA ({ca_pem.what})", PATIENCE_WITHOUT_CREDENTIALS_SECONDS)
        goal = couchbase_goal(whole, await self.gatherer.bare(resource), working_set_bytes=0)
        couchbase = named_cluster(spec, goal, admin=admin, user=None, ca_pem=ca_pem, guard=self.guard)
        key = Key(namespace, str(resource["metadata"]["name"]))
        done = await Arm(couchbase, key, self.visits, memory, _keep_nothing).remove()
        if done is None:
            return Remains("Couchbase has not answered yet.", PATIENCE_SECONDS)
        return None if isinstance(done.verdict, Proceed) else Remains(done.verdict.message, PATIENCE_SECONDS)


async def _keep_nothing(_: BucketRecord) -> None:
    """Accept a record: a resource that goes remembers nothing more."""
