"""Refusals name fields of the resource; at the command line the same thing is an option. Pure."""

from __future__ import annotations

_OPTIONS = {
    "spec.engine.tensorParallelSize": "--tensor-parallel-size",
    "spec.engine.pipelineParallelSize": "--pipeline-parallel-size",
    "spec.engine.decodeContextParallelSize": "--decode-context-parallel-size",
    "spec.engine.kvCacheDtype": "--kv-cache-dtype",
    "spec.engine.dtype": "--dtype",
    "spec.engine.blockSize": "--block-size",
    "spec.engine.maxModelLen": "--max-model-len",
    "spec.engine.attentionBackend": "--attention-backend",
    "spec.cache.chunkSize": "--chunk-size",
    "spec.cache.l1Size": "L1 of",
    "spec.cache.workingSet.tokensPerContext": "--tokens-per-context",
    "spec.model.override with kvBytesPerToken and blockSize": (
        "--override-kv-bytes-per-token and --override-block-size"
    ),
    "spec.model.override.blockSize": "--override-block-size",
    "spec.model.override.kvBytesPerToken": "--override-kv-bytes-per-token",
    "spec.model.override": "--override-kv-bytes-per-token and --override-block-size",
    "spec.model.config.hub.endpoint": "HF_ENDPOINT",
    "spec.model.tokenSecretRef": "HF_TOKEN",
    "spec.model.revision": "--revision",
    "spec.model.id": "--model",
}


def in_words_of_options(message: str) -> str:
    """Return a message with options in the place of fields."""
    for name, option in _OPTIONS.items():
        message = message.replace(name, option)
    return message
