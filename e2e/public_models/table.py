"""The page about public models: what is worked out for each, on one GPU and for 10,000 tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec
from couchbase_lm_operator.cli.failure import RefusedInputError
from couchbase_lm_operator.cli.offline import offline_plan
from couchbase_lm_operator.cli.output import binary_size
from couchbase_lm_operator.core.compat import defaults
from couchbase_lm_operator.core.engine.engine_layout import EngineLayout
from couchbase_lm_operator.core.model.model_families import FAMILIES, REAL_RUN, SPEC_LEVEL, WRAPPERS
from couchbase_lm_operator.core.model.model_shape import read_shape
from couchbase_lm_operator.core.observed import ModelConfig
from couchbase_lm_operator.core.refusal import RefusedError
from couchbase_lm_operator.core.sizing.estimate import CONVERSATION_TOKENS, Estimate, Question, estimate
from couchbase_lm_operator.core.sizing.payoff import DEFAULT_LOAD_GIGABYTES_PER_SECOND, DEFAULT_PREFILL_TERAFLOPS
from e2e.bootstrap import ROOT
from e2e.public_models.models import PUBLIC_MODELS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from couchbase_lm_operator.core.sizing.sizing import Sizing
    from e2e.public_models.models import PublicModel

PAGE = ROOT / "docs" / "models.md"
# no version of an engine is shown on the page, and the fingerprint neither
_NO_VERSIONS: dict[str, str] = {}
_HEADER = (
    *("Model", "Type", "Bytes per token", "State", "Block", "Chunk", "Object(s), MiB", "10k tokens", "L1"),
    *("Pays off above", "In pods", "Evidence", "Config"),
)
_RIGHT = frozenset({"Bytes per token", "State", "Block", "Chunk", "10k tokens", "L1", "Pays off above"})

_INTRODUCTION = """\
# Public models

<!-- Written by `make generate` from e2e/public_models; do not edit. -->

What follows from the `config.json` of models that people serve, on one CUDA device (tensor and pipeline parallel
size 1, KV cache in the model's own type), for contexts of {tokens:,} tokens or as long as the model allows (then the
length is in brackets). `lmcb size --config config.json --max-model-len {tokens}` gives the same with every other
number; flags change them.

Models that mix kinds of layers have the numbers of copies by LMCache itself here. In the operator's pods with NVIDIA
GPUs vLLM copies, which carries one kind only: sliding windows are then kept in full, which gives other numbers, and a
model whose layers cannot become one kind is refused. The column **In pods** tells, and `lmcb plan` for your resource.

{table}

- **Bytes per token**: keys and values of one token in all layers that keep them; twice that of an 8-bit KV cache.
- **State**: one snapshot of the recurrent layers; each chunk that ends a step of the engine has one.
- **Block**: what a chunk must be a multiple of. With recurrent layers it is odd, and changes with flags.
- **Object(s)**: one chunk on one rank, an entry for each object group.
- **10k tokens**: what such a context takes in the bucket, one copy.
- **L1**: memory for the LMCache server, so that such a context can be loaded beside what is never evicted. It grows
  with the longest context that engines allow.
- **Pays off above**: loading is faster than computing from that speed on, if each rank computes {flops:g} TFLOP/s (an
  A100 in long prompts; an H100 reaches some 400). The default assumption for loading is {load:g} GB/s. Both are
  options of `lmcb size`, and what pods really reach takes the place of the prediction after 20 loads.
- **In pods**: what a resource with vendor NVIDIA gets of all this: `same`, what differs (objects in MiB), or `refused`.
  The operator limits an L1 that it works out, by default to {cap}.
- **Evidence** for the type: `real run` - objects that a real engine and LMCache server stored had exactly the predicted
  bytes; `spec level` - vLLM's own model class and LMCache's own size code gave them, without serving; `formula` - the
  formula of the family, which other types were compared with.
- **Config**: `published` - the numbers are those of the model's own `config.json` or a transcription of it;
  `defaults` - those of the transformers library for the type, or partly assumed; `unverified` - from memory.

## All model types

`model_type` of config.json decides, and `architectures` where it is given. Anything else is refused, or sized from
`spec.model.override`.

- Real runs were compared: {real_run}.
- vLLM's and LMCache's own size code was compared: {spec_level}.
- Models that also see or hear, by the decoder inside: {wrappers}.
"""


def page() -> str:
    """Return the text of the page."""
    return _INTRODUCTION.format(
        tokens=CONVERSATION_TOKENS,
        table="\n".join(_lines([_row(model) for model in PUBLIC_MODELS])),
        flops=DEFAULT_PREFILL_TERAFLOPS["cuda"],
        load=DEFAULT_LOAD_GIGABYTES_PER_SECOND,
        cap=binary_size(defaults().max_l1_bytes),
        real_run=_listed(name for name, family in FAMILIES.items() if family.evidence == REAL_RUN),
        spec_level=_listed(name for name, family in FAMILIES.items() if family.evidence == SPEC_LEVEL),
        wrappers=_listed(WRAPPERS),
    )


def estimated(model: PublicModel) -> Estimate:
    """Return the estimate that the page shows of one model.

    Raises:
        RefusedError: the model cannot be sized.
    """
    longest = min(CONVERSATION_TOKENS, read_shape(model.config, model.name).max_model_len)
    question = Question(EngineLayout(), max_model_len=longest, context_tokens=longest)
    return estimate(model.config, model.name, question, _NO_VERSIONS)


def _row(model: PublicModel) -> tuple[str, ...]:
    try:
        found = estimated(model)
    except RefusedError as error:
        text = model.config.get("text_config", model.config)
        refused = f"refused: {error.verdict.reason}"
        return (model.name, f"`{text['model_type']}`", *[""] * 9, refused, model.source)
    sized = found.sizing
    length = "" if sized.context_tokens == CONVERSATION_TOKENS else f" ({sized.context_tokens:,})"
    return (
        model.name,
        f"`{found.shape.model_type}`",
        f"{sized.attention_bytes_per_token_per_rank:,}",
        f"{sized.state_bytes_per_rank:,}" if sized.state_bytes_per_rank else "",
        str(sized.block_size_tokens),
        str(sized.chunk_size_tokens),
        _objects(sized),
        binary_size(sized.bytes_per_context) + length,
        _l1(sized),
        _break_even(found.payoff.break_even_bytes_per_second),
        _in_pods(model, sized),
        sized.evidence,
        model.source,
    )


def _in_pods(model: PublicModel, shown: Sizing) -> str:
    """Return what is different in the pods of a resource for the same contexts."""
    tokens = shown.context_tokens
    spec = LMCacheCouchbaseSpec.model_validate(
        {
            "model": {"id": "public/model"},
            "couchbase": {"connectionString": "couchbase://cb", "adminSecretRef": {"name": "cb-admin"}},
            "engine": {"maxModelLen": tokens},
            "cache": {"workingSet": {"tokensPerContext": tokens}},
        }
    )
    metadata = {"name": "model", "namespace": "default", "uid": ""}
    config = ModelConfig(model.config, digest="", revision="", source=model.name)
    try:
        planned = offline_plan(spec, {"metadata": metadata}, config, defaults()).sizing
    except RefusedInputError:
        return "refused"
    numbers = (
        ("block", str(shown.block_size_tokens), str(planned.block_size_tokens)),
        ("chunk", str(shown.chunk_size_tokens), str(planned.chunk_size_tokens)),
        ("object", _objects(shown), _objects(planned)),
        ("10k", binary_size(shown.bytes_per_context), binary_size(planned.bytes_per_context)),
        ("L1", _l1(shown), _l1(planned)),
    )
    return ", ".join(f"{name} {there}" for name, here, there in numbers if here != there) or "same"


def _objects(sized: Sizing) -> str:
    return " + ".join(f"{each / (1 << 20):.2f}" for each in sized.object_bytes)


def _l1(sized: Sizing) -> str:
    return f"{sized.l1_bytes >> 30} GiB"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _break_even(bytes_per_second: float | None) -> str:
    return "" if bytes_per_second is None else f"{bytes_per_second / 1e9:.2g} GB/s"


def _lines(rows: Iterable[tuple[str, ...]]) -> Iterable[str]:
    yield f"| {' | '.join(_HEADER)} |"
    yield f"| {' | '.join('---:' if name in _RIGHT else '---' for name in _HEADER)} |"
    for row in rows:
        yield f"| {' | '.join(row)} |"
