"""``lmcb size``: what a model's KV cache needs, from its config.json alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.cli import option_types, size_report
from couchbase_lm_operator.cli.failure import BadInputError, RefusedInputError
from couchbase_lm_operator.cli.model_config import config_from_file, config_from_hub
from couchbase_lm_operator.cli.option_names import in_words_of_options
from couchbase_lm_operator.cli.output import dumped, output_option
from couchbase_lm_operator.core.compat import compat
from couchbase_lm_operator.core.engine.engine_layout import EngineLayout
from couchbase_lm_operator.core.refusal import RefusedError
from couchbase_lm_operator.core.sizing import estimate

if TYPE_CHECKING:
    from couchbase_lm_operator.core.observed import ModelConfig

_BAD_INPUT = frozenset({Reason.MODEL_CONFIG_INVALID})


@click.command("size")
@click.option("--config", "config_path", metavar="FILE", help="The model's config.json; - is standard input.")
@click.option("--model", "model_id", metavar="ID", help="A model of the hub. HF_TOKEN and HF_ENDPOINT are used.")
@click.option("--revision", help="Branch, tag or commit of --model.")
@click.option("--platform", type=click.Choice(["cuda", "cpu"]), default="cuda", show_default=True, help="Device.")
@click.option("--tensor-parallel-size", type=option_types.RANKS, default=1, show_default=True, help="Ranks per layer.")
@click.option(
    "--pipeline-parallel-size",
    type=option_types.RANKS,
    default=1,
    show_default=True,
    help="Ranks that share the stack.",
)
@click.option(
    "--decode-context-parallel-size", type=option_types.RANKS, default=1, show_default=True, help="Ranks per context."
)
@click.option(
    "--kv-cache-dtype",
    type=option_types.KV_CACHE_DTYPE,
    metavar="TYPE",
    default="auto",
    show_default=True,
    help="As vLLM's, for example fp8.",
)
@click.option("--dtype", type=option_types.DTYPE, metavar="TYPE", help="As vLLM's; else config.json's.")
@click.option("--block-size", type=option_types.BLOCK_TOKENS, help="Tokens of a KV block, when the engine is told.")
@click.option("--chunk-size", type=option_types.BLOCK_TOKENS, help="Tokens of a chunk; worked out when absent.")
@click.option("--max-model-len", type=option_types.TOKENS, help="Longest context in tokens; else config.json's.")
@click.option("--attention-backend", type=option_types.Name(), metavar="NAME", help="As vLLM's, for example FLASHMLA.")
@click.option("--separate-object-groups/--no-separate-object-groups", default=None, help="LMCache's flag.")
@click.option(
    "--hybrid-kv-cache/--no-hybrid-kv-cache", default=True, help="vLLM's hybrid KV cache manager.", show_default=True
)
@click.option(
    "--speculative-method",
    type=option_types.Name(),
    metavar="NAME",
    help="As in vLLM's speculative config, for example mtp.",
)
@click.option("--num-speculative-layers", type=click.IntRange(0, 64), default=0, help="Layers of the draft model.")
@click.option("--override-kv-bytes-per-token", type=click.IntRange(1, 1 << 30), help="For models not on the list.")
@click.option("--override-block-size", type=option_types.BLOCK_TOKENS, help="With --override-kv-bytes-per-token.")
@click.option(
    "--contexts", type=option_types.CONTEXTS, default=100, show_default=True, help="Contexts the bucket should hold."
)
@click.option(
    "--tokens-per-context", type=option_types.TOKENS, help="Tokens of a typical context; default 8192, or the longest."
)
@click.option("--bucket-replicas", type=click.IntRange(0, 3), default=0, show_default=True, help="Of the bucket.")
@click.option("--data-nodes", type=click.IntRange(1, 1000), help="Of Couchbase; default one more than the replicas.")
@click.option(
    "--load-gigabytes-per-second", type=option_types.Rate(), help="Speed of loads, all ranks of a pod. [default: 2]"
)
@click.option(
    "--prefill-teraflops",
    type=option_types.Rate(),
    help="Speed of one rank. [default: 150 on cuda (an A100), 1 on cpu]",
)
@output_option
def size_command(config_path: str | None, model_id: str | None, revision: str | None, **options: Any) -> None:
    """Size the KV cache of a model: bytes, chunks, documents, L1, bucket, and whether it pays off."""
    config = _config(config_path, model_id, revision)
    try:
        found = estimate.estimate(config.content, config.source, _question(options), _versions())
    except RefusedError as error:
        told = f"{error.verdict.reason}: {in_words_of_options(error.verdict.message)}"
        failure = BadInputError if error.verdict.reason in _BAD_INPUT else RefusedInputError
        raise failure(told) from error
    form = options["output"]
    click.echo(size_report.report(found) if form == "table" else dumped(size_report.fields(found), form))


def _config(path: str | None, model_id: str | None, revision: str | None) -> ModelConfig:
    if (path is None) == (model_id is None):
        raise BadInputError("Give the model with one of --config FILE (- is standard input) and --model ID.")
    if model_id is not None:
        return config_from_hub(model_id, revision)
    if revision is not None:
        raise BadInputError("--revision is for --model: a file has no revision.")
    assert path is not None  # noqa: S101 - one of the two is given
    return config_from_file(path)


def _versions() -> dict[str, str]:
    tested = compat()["versions"]
    return {name: str(tested[name]) for name in ("vllm", "lmcache")}


def _question(options: dict[str, Any]) -> estimate.Question:
    replicas, nodes = options["bucket_replicas"], options["data_nodes"]
    if nodes is not None and nodes <= replicas:
        raise BadInputError(f"--data-nodes {nodes} is too few: {replicas} replicas need {replicas + 1} at least.")
    override, override_block = options["override_kv_bytes_per_token"], options["override_block_size"]
    if (override is None) != (override_block is None):
        raise BadInputError("--override-kv-bytes-per-token and --override-block-size go together: give both.")
    return estimate.Question(
        engine=EngineLayout(
            platform=options["platform"],
            tensor_parallel_size=options["tensor_parallel_size"],
            pipeline_parallel_size=options["pipeline_parallel_size"],
            decode_context_parallel_size=options["decode_context_parallel_size"],
            kv_cache_dtype=options["kv_cache_dtype"],
            dtype=None if options["dtype"] == "auto" else options["dtype"],
            block_size=override_block or options["block_size"],
            attention_backend=backend.upper() if (backend := options["attention_backend"]) else None,
            separate_object_groups=options["separate_object_groups"],
            hybrid_kv_cache=options["hybrid_kv_cache"],
            speculative_method=options["speculative_method"],
            num_speculative_layers=options["num_speculative_layers"],
        ),
        chunk_tokens=options["chunk_size"],
        max_model_len=options["max_model_len"],
        contexts=options["contexts"],
        context_tokens=options["tokens_per_context"],
        bucket_replicas=replicas,
        data_nodes=replicas + 1 if nodes is None else nodes,
        override_bytes_per_token=override,
        load_gigabytes_per_second=options["load_gigabytes_per_second"],
        prefill_teraflops=options["prefill_teraflops"],
    )
