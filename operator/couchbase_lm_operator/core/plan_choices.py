"""What became of the fields of Couchbase and cache that a user left open, and why. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from couchbase_lm_operator.core.choice import Choice
from couchbase_lm_operator.core.quantity import format_bytes

if TYPE_CHECKING:
    from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec
    from couchbase_lm_operator.core.couchbase_state import CouchbaseGoal
    from couchbase_lm_operator.core.sizing.sizing import Sizing
    from couchbase_lm_operator.core.sizing.transfer import Transfer


def plan_choices(
    spec: LMCacheCouchbaseSpec, sized: Sizing, goal: CouchbaseGoal, prefix: str, transfer: Transfer
) -> tuple[Choice, ...]:
    """Return the choices; those of the engine are in ``core.engine.engine_values``."""
    couchbase, cache = spec.couchbase, spec.cache
    is_capped = sized.l1_bytes < sized.l1_wanted_bytes
    l1_reason = (
        f"the operator's limit; {format_bytes(sized.l1_wanted_bytes)} would hold the longest context"
        if is_capped
        else f"holds the longest context of {sized.max_context_tokens} tokens beside what is never evicted"
    )
    entries = (
        (couchbase.provisioning, "couchbase.provisioning", goal.provisioning, "from the Secrets that are given"),
        (couchbase.bucket.name, "couchbase.bucket.name", goal.bucket.name, "from the cluster's id and the name"),
        (couchbase.scope, "couchbase.scope", goal.scope, "the namespace"),
        (
            couchbase.collection,
            "couchbase.collection",
            goal.collection,
            "cache.shareGroup" if cache.share_group else "the name",
        ),
        (couchbase.user, "couchbase.user.name", goal.user, "one user per resource"),
        (cache.chunk_size, "cache.chunkSize", str(sized.chunk_size_tokens), sized.chunk_reason),
        (cache.shard_size, "cache.shardSize", format_bytes(sized.shard_bytes), "fastest to read"),
        (cache.l1_size, "cache.l1Size", format_bytes(sized.l1_bytes), l1_reason),
        (cache.key_prefix, "cache.keyPrefix", prefix, "fingerprint of what changes bytes but not keys"),
        (cache.transfer, "cache.transfer", transfer.mode, transfer.reason),
    )
    is_external = goal.provisioning == "External"
    return tuple(
        Choice(field, value, reason)
        for given, field, value, reason in entries
        # an External user is the one of its Secret
        if given is None and not (is_external and field == "couchbase.user.name")
    )
