"""All numbers of one model from its config.json and an engine's flags, without any resource. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.model import model_shape
from couchbase_lm_operator.core.model.context_length import longest_tokens
from couchbase_lm_operator.core.model.prefill_cost import prefill_cost
from couchbase_lm_operator.core.refusal import RefusedError
from couchbase_lm_operator.core.sizing import kv_layout, sizing
from couchbase_lm_operator.core.sizing.layout_fingerprint import layout_fingerprint
from couchbase_lm_operator.core.sizing.payoff import assumed_rates, context_payoff

if TYPE_CHECKING:
    from collections.abc import Mapping

    from couchbase_lm_operator.core.engine.engine_layout import EngineLayout
    from couchbase_lm_operator.core.model.model_shape import ModelShape
    from couchbase_lm_operator.core.sizing.payoff import Payoff, Rates
    from couchbase_lm_operator.core.sizing.sizing import Sizing

CONVERSATION_TOKENS = 10_000
"""A long conversation: what people are told the cost of, unless they name a length."""


_LMCACHE_COPIES = (
    "These numbers are for copies by LMCache itself, which the layers' different kinds need. Where vLLM copies, pods "
    "keep sliding windows in full or the model is refused: `lmcb plan` tells."
)


@dataclass(frozen=True)
class Question:
    """What is asked about a model; None means "work it out".

    ``override_bytes_per_token`` are the bytes of one token on one rank of a model that is not on the list;
    ``engine.block_size`` then is its block. L1 has no cap here: that is a setting of an operator.
    """

    engine: EngineLayout
    chunk_tokens: int | None = None
    max_model_len: int | None = None
    contexts: int = 100
    context_tokens: int | None = None
    bucket_replicas: int = 0
    data_nodes: int = 1
    override_bytes_per_token: int | None = None
    load_gigabytes_per_second: float | None = None
    prefill_teraflops: float | None = None


@dataclass(frozen=True)
class Estimate:
    """The answer: ``conversation`` is the same sizing for one conversation, of which ``payoff`` tells."""

    shape: ModelShape
    sizing: Sizing
    conversation: Sizing
    rates: Rates
    payoff: Payoff
    fingerprint: str


def estimate(config: dict[str, Any], where: str, question: Question, versions: Mapping[str, str]) -> Estimate:
    """Return all numbers; ``where`` names the configuration for people, ``versions`` are vLLM's and LMCache's.

    Raises:
        RefusedError: the model cannot be sized, or the flags do not fit it.
    """
    shape, engine = _shape(config, where, question), question.engine
    longest = question.max_model_len or shape.max_model_len
    limit = longest_tokens(config, shape.max_model_len)
    if longest > limit:
        raise RefusedError(
            Reason.INVALID_SPEC,
            f"spec.engine.maxModelLen {longest} is more than the {limit} tokens that config.json allows.",
        )
    # layers of several kinds can only be copied by LMCache itself
    is_engine_driven = kv_layout.layout(shape, engine).is_single_transfer_group
    inputs = sizing.SizingInputs(
        engine=engine,
        max_context_tokens=longest,
        context_tokens=min(question.context_tokens, longest) if question.context_tokens else None,
        contexts=question.contexts,
        chunk_tokens=question.chunk_tokens,
        is_engine_driven=is_engine_driven,
        bucket_replicas=question.bucket_replicas,
        data_nodes=question.data_nodes,
    )
    sized = sizing.size(shape, inputs)
    if not is_engine_driven:
        sized = replace(sized, warnings=(*sized.warnings, _LMCACHE_COPIES))
    talk_tokens = min(question.context_tokens or CONVERSATION_TOKENS, longest)
    talk = sizing.size(shape, replace(inputs, chunk_tokens=sized.chunk_size_tokens, context_tokens=talk_tokens))
    rates = assumed_rates(engine.platform, question.load_gigabytes_per_second, question.prefill_teraflops)
    ranks = engine.tensor_parallel_size * engine.pipeline_parallel_size
    return Estimate(
        shape=shape,
        sizing=sized,
        conversation=talk,
        rates=rates,
        payoff=context_payoff(talk, prefill_cost(config, shape), ranks, rates),
        fingerprint=layout_fingerprint(shape, engine, sized.chunk_size_tokens, versions),
    )


def _shape(config: dict[str, Any], where: str, question: Question) -> ModelShape:
    if question.override_bytes_per_token is not None:
        return model_shape.overridden_shape(config, question.override_bytes_per_token, where)
    return model_shape.read_shape(config, where)
