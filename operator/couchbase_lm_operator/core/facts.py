"""The numbers of status: what was worked out for a pod template, and what the bucket holds. Pure."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator.core.couchbase.bucket_quota import USABLE_SHARE_PERCENT
from couchbase_lm_operator.core.quantity import format_bytes
from couchbase_lm_operator.core.sizing import payoff_facts

if TYPE_CHECKING:
    from couchbase_lm_operator.core.couchbase.bucket_quota import BucketSize
    from couchbase_lm_operator.core.plan import Plan
    from couchbase_lm_operator.core.sizing.sizing import Sizing


def template_facts(plan: Plan) -> dict[str, Any]:
    """Return the status blocks that belong to a pod template and are kept with it."""
    sizing, shape, payoff = plan.sizing, plan.shape, payoff_facts.to_record(plan.payoff)
    capacity = {
        "bytesPerContext": sizing.bytes_per_context,
        "loadedBytesPerContext": sizing.loaded_bytes_per_context,
        "contextsInL1": sizing.contexts_in_l1,
        "l1": format_bytes(sizing.l1_bytes),
        "sharedMemory": format_bytes(sizing.shared_memory_bytes),
    }
    capacity |= payoff_facts.capacity(payoff, None)
    if sizing.longest_cacheable_tokens < sizing.max_context_tokens:
        capacity["longestCacheableTokens"] = sizing.longest_cacheable_tokens
    return {
        "model": without_empty(
            {
                "modelType": shape.model_type,
                "architecture": shape.architecture or shape.model_type,
                "revision": plan.values.revision,
                "evidence": sizing.evidence,
                "kvBytesPerToken": {
                    "rank": sizing.attention_bytes_per_token_per_rank,
                    "all": sizing.attention_bytes_per_token,
                },
                "stateBytes": sizing.state_bytes_per_rank or None,
                "ranks": sizing.ranks,
                "blockSize": sizing.block_size_tokens,
                "chunkSize": sizing.chunk_size_tokens,
                "objectBytes": list(sizing.object_bytes),
                "shardSize": format_bytes(sizing.shard_bytes),
                "documentsPerChunk": sizing.documents_per_chunk,
                "configDigest": plan.config_digest,
            }
        ),
        "capacity": capacity,
        "transfer": {"mode": plan.transfer_mode, "reason": plan.transfer_reason},
        "keyPrefix": plan.key_prefix,
        # what core.sizing.sizing_verdict holds against what pods really store
        "prediction": {"objectBytes": _largest_objects(sizing), "ranks": sizing.ranks},
        "payoff": payoff,
        # the size of a bucket that has to be made anew while nothing can be planned
        "workingSetBytesPerContext": sizing.working_set_bytes // sizing.working_set_contexts,
    }


def current_model(block: dict[str, Any]) -> dict[str, Any]:
    """Return a ``model`` block as status has it today: earlier operators recorded one number of ``objectBytes``."""
    size = block.get("objectBytes")
    return {**block, "objectBytes": [size]} if isinstance(size, int) else block


def _largest_objects(sizing: Sizing) -> list[int]:
    """Return the bytes of the largest object of each group: ranks with other layers have other sizes."""
    chunk = sizing.chunk_size_tokens
    ranks = [[group.object_bytes(chunk) for group in groups] for groups in sizing.layout.stage_groups(chunk)]
    return [max(sizes) for sizes in zip_longest(*ranks, fillvalue=0)]


def bucket_capacity(size: BucketSize, bytes_per_context: int) -> dict[str, Any]:
    """Return what the bucket adds to ``capacity``: its memory and the contexts that fit before eviction."""
    usable_bytes = size.quota_total_bytes * USABLE_SHARE_PERCENT // 100 // (1 + size.replicas)
    return {
        "quota": format_bytes(size.quota_total_bytes),
        "contextsInBucket": usable_bytes // bytes_per_context if bytes_per_context else 0,
    }


def without_empty(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block without the entries that say nothing."""
    return {name: value for name, value in block.items() if value not in (None, "")}
