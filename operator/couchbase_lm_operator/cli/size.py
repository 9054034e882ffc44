"""``lmcb size``: the numbers of a model from its config.json, without any resource."""

from __future__ import annotations

from typing import Any

import click

from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec
from couchbase_lm_operator.cli.model_config import config_from_file
from couchbase_lm_operator.cli.numbers import number_rows, numbers
from couchbase_lm_operator.cli.offline import offline_plan
from couchbase_lm_operator.cli.output import dumped, output_option, table
from couchbase_lm_operator.core.compat import defaults

_POSITIVE = click.IntRange(min=1)


@click.command("size")
@click.option("--config", "config_path", required=True, help="The model's config.json; - is standard input.")
@click.option("--vendor", type=click.Choice(["NVIDIA", "CPU"]), default="NVIDIA", show_default=True, help="Device.")
@click.option(
    "--tensor-parallel-size", type=click.IntRange(1, 64), default=1, show_default=True, help="Ranks per layer."
)
@click.option("--pipeline-parallel-size", type=click.IntRange(1, 64), default=1, help="Ranks that share the stack.")
@click.option("--kv-cache-dtype", type=click.Choice(["fp8", "fp8_e4m3", "fp8_e5m2"]), help="8-bit KV cache.")
@click.option("--dtype", type=click.Choice(["bfloat16", "float16", "float32"]), help="Data type of the model.")
@click.option("--max-model-len", type=_POSITIVE, help="Longest context in tokens.")
@click.option("--block-size", type=_POSITIVE, help="Tokens of a KV block.")
@click.option("--chunk-size", type=_POSITIVE, help="Tokens of a chunk.")
@click.option("--contexts", type=_POSITIVE, default=100, show_default=True, help="Contexts the bucket should hold.")
@click.option("--tokens", type=_POSITIVE, help="Tokens of a typical context.")
@output_option
def size_command(config_path: str, output: str, **options: Any) -> None:
    """Size the KV cache of the model whose config.json is given: bytes, chunks, documents, L1, bucket."""
    config = config_from_file(config_path)
    resource = {"metadata": {"name": "size", "namespace": "default", "uid": ""}}
    sizing = offline_plan(_spec(options), resource, config, defaults()).sizing
    if output == "table":
        click.echo(table(number_rows(sizing), ("NUMBER", "VALUE", "MEANING")))
    else:
        click.echo(dumped(numbers(sizing), output))


def _spec(options: dict[str, Any]) -> LMCacheCouchbaseSpec:
    """Return the smallest spec that says what the options say."""
    engine = {
        "tensorParallelSize": options["tensor_parallel_size"],
        "pipelineParallelSize": options["pipeline_parallel_size"],
        "kvCacheDtype": options["kv_cache_dtype"],
        "dtype": options["dtype"],
        "maxModelLen": options["max_model_len"],
        "blockSize": options["block_size"],
    }
    return LMCacheCouchbaseSpec.model_validate(
        {
            "model": {"id": "model"},
            "couchbase": {"connectionString": "couchbase://unused", "adminSecretRef": {"name": "unused"}},
            "accelerator": {"vendor": options["vendor"]},
            "engine": {name: value for name, value in engine.items() if value is not None},
            "cache": {
                "chunkSize": options["chunk_size"],
                "workingSet": {"contexts": options["contexts"], "tokensPerContext": options["tokens"]},
            },
        }
    )
