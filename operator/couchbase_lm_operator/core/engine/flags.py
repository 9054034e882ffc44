"""What users may not pass to vLLM, to ``lmcache server`` and to the adapter, in any spelling. Pure.

Both command lines take abbreviations of long options; vLLM also takes ``--a_b`` for ``--a-b``, ``--a=b``,
``--a.key`` for JSON options and a file with ``--config``. A flag that is given twice wins in its last
spelling, so an unnoticed one would silently undo what the operator worked out.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.adapter_settings import ADAPTER_SETTINGS
from couchbase_lm_operator.core.verdict import Refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SET_BY_OPERATOR = "the operator sets it"
_USE = "use {} instead"
_ONE_POD = "one pod runs one whole engine"
_CHANGES_LAYOUT = "remove it, as it changes the layout of the cache in a way this version cannot size"
_SET_FOR_MODEL = "the operator sets it where the model's layers need it"
_CHANGES_CONFIG = "it changes what config.json says after the operator has read it"

# normalised flag -> what to do instead
_VLLM_OWNED: dict[str, str] = {
    "--model": _USE.format("spec.model.id"),
    "--revision": _USE.format("spec.model.revision"),
    "--code-revision": _USE.format("spec.model.revision"),
    "--tokenizer-revision": _USE.format("spec.model.revision"),
    "--hf-token": _USE.format("spec.model.tokenSecretRef"),
    "--served-model-name": _USE.format("spec.engine.servedModelName"),
    "--tensor-parallel-size": _USE.format("spec.engine.tensorParallelSize"),
    "--pipeline-parallel-size": _USE.format("spec.engine.pipelineParallelSize"),
    "--dtype": _USE.format("spec.engine.dtype"),
    "--kv-cache-dtype": _USE.format("spec.engine.kvCacheDtype"),
    "--max-model-len": _USE.format("spec.engine.maxModelLen"),
    "--block-size": _USE.format("spec.engine.blockSize"),
    "--attention-backend": _USE.format("spec.engine.attentionBackend"),
    "--gpu-memory-utilization": _USE.format("spec.engine.gpuMemoryUtilization"),
    "--host": _SET_BY_OPERATOR,
    "--port": "the pods always listen on 8000; the Service's port is spec.service.port",
    "--uds": _SET_BY_OPERATOR,
    "--shutdown-timeout": _USE.format("spec.terminationGracePeriod"),
    "--kv-transfer-config": _SET_BY_OPERATOR,
    "--kv-offloading-size": "the cache is LMCache's",
    "--kv-offloading-backend": "the cache is LMCache's",
    "--config": "a file could set what the operator sets; list the flags here",
    "--api-key": "a secret must not stand in arguments; set VLLM_API_KEY in spec.engine.env from a Secret",
    "--attention-config": _USE.format("spec.engine.attentionBackend"),
    "--headless": _ONE_POD,
    "--nnodes": _ONE_POD,
    "--node-rank": _ONE_POD,
    "--data-parallel-size": "use spec.replicas instead",
    "--data-parallel-size-local": "use spec.replicas instead",
    "--decode-context-parallel-size": _CHANGES_LAYOUT,
    "--prefill-context-parallel-size": _CHANGES_LAYOUT,
    "--speculative-config": _CHANGES_LAYOUT,
    "--spec-method": _CHANGES_LAYOUT,
    "--spec-model": _CHANGES_LAYOUT,
    "--spec-tokens": _CHANGES_LAYOUT,
    "--kv-cache-dtype-skip-layers": _CHANGES_LAYOUT,
    "--disable-sliding-window": _CHANGES_LAYOUT,
    "--mamba-block-size": _CHANGES_LAYOUT,
    "--use-replayssm": _CHANGES_LAYOUT,
    "--disable-hybrid-kv-cache-manager": _SET_FOR_MODEL,
    "--no-disable-hybrid-kv-cache-manager": _SET_FOR_MODEL,
    "--mamba-cache-mode": _SET_FOR_MODEL,
    "--enable-prompt-embeds": "prompts without tokens have no cache keys",
    "--hf-overrides": _CHANGES_CONFIG,
    "--hf-config-path": _CHANGES_CONFIG,
    "--ssl-keyfile": "the probes speak plain HTTP; terminate TLS in front of the Service",
    "--ssl-certfile": "the probes speak plain HTTP; terminate TLS in front of the Service",
}
_VLLM_SHORT = {"-tp": "--tensor-parallel-size", "-pp": "--pipeline-parallel-size", "-dp": "--data-parallel-size"}
_VLLM_SHORT |= {"-dcp": "--decode-context-parallel-size", "-pcp": "--prefill-context-parallel-size"}
_VLLM_SHORT |= {"-sc": "--speculative-config", "-ac": "--attention-config", "-n": "--nnodes", "-r": "--node-rank"}
# LoRA flags of vLLM 0.32 that lose the word when they are abbreviated.
_LORA = (
    "--default-mm-loras",
    "--enable-lora",
    "--enable-mixed-moe-lora-format",
    "--enable-moe-shared-loras",
    "--enable-tower-connector-lora",
    "--fully-sharded-loras",
    "--max-cpu-loras",
    "--max-loras",
    "--specialize-active-lora",
)
# Real flags of vLLM that are also the beginning of an owned one.
_VLLM_NOT_ABBREVIATIONS = frozenset({"--tokenizer"})

_LMCACHE_OWNED: dict[str, str] = dict.fromkeys(
    (
        "--host",
        "--port",
        "--transport",
        "--http-host",
        "--http-port",
        "--engine-type",
        "--hash-algorithm",
        "--isolated-ipc",
        "--l1-init-size-gb",
        "--l1-manager",
        "--l1-use-lazy",
        "--no-l1-use-lazy",
        "--l2-adapter",
        "--separate-object-groups",
        "--no-separate-object-groups",
        "--shm-name",
        "--supported-transfer-mode",
        "--worker-reap-timeout-seconds",
    ),
    _SET_BY_OPERATOR,
)
_LMCACHE_OWNED |= {
    "--chunk-size": _USE.format("spec.cache.chunkSize"),
    "--l1-size-gb": _USE.format("spec.cache.l1Size"),
    "--config": "a file could set what the operator sets; list the flags here",
    "--run-script-api-enabled": "it would let anybody in the pod run code in the server",
    "--script-allowed-imports": "it would let anybody in the pod run code in the server",
}

_ENV_OWNED = frozenset(
    {
        "HOME",
        "HF_HOME",
        "LMCACHE_CONFIG_FILE",
        "LMCACHE_DEVICE_BACKEND",
        "LMCACHE_MP_TRANSFER_MODE",
        "TMPDIR",
        "USER",
        "VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
        "VLLM_MLA_DISABLE",
        "VLLM_PP_LAYER_PARTITION",
        "XDG_CACHE_HOME",
    }
)
_SIDECAR_ENV_OWNED = frozenset({"PYTHONPATH", "NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"})
_ENV_OWNED_PREFIXES = ("LMCACHE_COUCHBASE_",)

ADAPTER_PARAMS_OWNED = frozenset(
    {
        "connection_string",
        "username",
        "username_file",
        "password",
        "password_file",
        "bucket_name",
        "scope_name",
        "collection_name",
        "key_prefix",
        "ttl_seconds",
        "refresh_ttl",
        "shard_size_bytes",
        "checksum",
        "require_checksum",
        "metrics_host",
        "metrics_port",
        "startup",
        "tls_ca_file",
        "tls_skip_verify",
    }
)


def normalised(argument: str) -> str:
    """Return the flag of an argument as ``--a-b``: without value, JSON path, list mark and underscores."""
    flag = re.split(r"[=.]", argument, maxsplit=1)[0].rstrip("+")
    if flag.startswith("--"):
        return "--" + flag[2:].replace("_", "-").lower()
    return flag


def refused_vllm_argument(arguments: Sequence[str], field: str) -> Refuse | None:
    """Return why ``vllm serve`` may not get these arguments, or None. ``field`` names the list for people."""
    if arguments and not arguments[0].startswith("-"):
        return Refuse(
            Reason.FLAG_NOT_ALLOWED,
            f"{field}[0] does not start with a dash, but the model stands before it already: start with a flag.",
        )
    for position, argument in enumerate(arguments):
        if _hides_its_flag(argument):
            return _hidden_flag_refusal(field, position)
        if not argument.startswith("-"):
            continue
        flag = _long_form(normalised(argument))
        if "lora" in flag or _is_beginning(flag, _LORA):
            return Refuse(
                Reason.LORA_NOT_SUPPORTED,
                f"{field}[{position}] is {flag}: LoRA adapters change the cache but not its keys. Remove the flag.",
            )
        owned = _owned(flag, _VLLM_OWNED, _VLLM_NOT_ABBREVIATIONS)
        if owned is not None:
            return _flag_refusal(field, position, argument, owned, _VLLM_OWNED[owned])
    return None


def refused_lmcache_argument(arguments: Sequence[str], field: str) -> Refuse | None:
    """Return why ``lmcache server`` may not get these arguments, or None."""
    for position, argument in enumerate(arguments):
        if _hides_its_flag(argument):
            return _hidden_flag_refusal(field, position)
        if not argument.startswith("-"):
            continue
        owned = _owned(normalised(argument), _LMCACHE_OWNED, frozenset())
        if owned is not None:
            return _flag_refusal(field, position, argument, owned, _LMCACHE_OWNED[owned])
    return None


def refused_env(entries: Iterable[dict[str, Any]], field: str, *, is_sidecar: bool) -> Refuse | None:
    """Return why an environment variable may not be set, or None."""
    owned = _ENV_OWNED | (_SIDECAR_ENV_OWNED if is_sidecar else frozenset())
    for entry in entries:
        name = str(entry.get("name", ""))
        if name in owned or name.startswith(_ENV_OWNED_PREFIXES):
            return Refuse(
                Reason.ENV_NOT_ALLOWED,
                f"{field} sets {name}, which the operator sets or which would break the cache: remove it.",
            )
    return None


def refused_adapter_param(params: dict[str, Any], field: str) -> Refuse | None:
    """Return why a parameter of the Couchbase adapter may not be set, or None."""
    taken = sorted(ADAPTER_PARAMS_OWNED & params.keys())
    if taken:
        return Refuse(
            Reason.ADAPTER_PARAM_NOT_ALLOWED,
            f"{field}.{taken[0]} is set by the operator from spec.couchbase and spec.cache: remove it.",
        )
    unknown = sorted(params.keys() - ADAPTER_SETTINGS)
    if not unknown:
        return None
    allowed = sorted(ADAPTER_SETTINGS - ADAPTER_PARAMS_OWNED)
    close = difflib.get_close_matches(unknown[0], allowed, n=1)
    advice = f"did you mean {close[0]}?" if close else f"allowed are {', '.join(allowed)}."
    return Refuse(
        Reason.ADAPTER_PARAM_UNKNOWN,
        f"{field}.{unknown[0]} is not a setting of the Couchbase adapter, which would not start with it: {advice}",
    )


def escaped(value: str) -> str:
    """Return a value of ours for ``command``, ``args`` or ``env``, safe from Kubernetes' ``$(VAR)``."""
    return value.replace("$", "$$")


def _hides_its_flag(argument: str) -> bool:
    """Say whether Kubernetes would expand a variable where a flag may stand."""
    return "$(" in argument.split("=", 1)[0]


def _hidden_flag_refusal(field: str, position: int) -> Refuse:
    return Refuse(
        Reason.FLAG_NOT_ALLOWED,
        f"{field}[{position}] could become any flag when its variable is expanded: write it as --flag=$(VARIABLE).",
    )


def _long_form(flag: str) -> str:
    if flag in _VLLM_SHORT:
        return _VLLM_SHORT[flag]
    glued = re.match(r"^-(tp|pp|dp|dcp|pcp|n|r)[0-9]+$", flag)
    if glued:
        return _VLLM_SHORT[f"-{glued[1]}"]
    # -dpn, -dpr, -dpl, -dpa, ...: all of them belong to data parallelism
    return "--data-parallel-size" if re.match(r"^-dp[a-z]$", flag) or flag.startswith("--data-parallel") else flag


def _owned(flag: str, owned: dict[str, str], not_abbreviations: frozenset[str]) -> str | None:
    """Return the owned flag that ``flag`` is, or that the parser would complete it to."""
    if flag in owned:
        return flag
    if flag in not_abbreviations or not _is_beginning(flag, owned):
        return None
    return next(name for name in sorted(owned) if name.startswith(flag))


def _is_beginning(flag: str, flags: Iterable[str]) -> bool:
    """Say whether the parser could complete ``flag`` to one of ``flags``."""
    return len(flag) > 2 and flag.startswith("--") and any(name.startswith(flag) for name in flags)


def _flag_refusal(field: str, position: int, argument: str, flag: str, remedy: str) -> Refuse:
    # only the flag is repeated: the value may be a secret
    shown = re.split(r"[=\s]", argument, maxsplit=1)[0][:64]
    means = "" if shown == flag else f" (that is {flag})"
    return Refuse(Reason.FLAG_NOT_ALLOWED, f"{field}[{position}] is {shown}{means}: {remedy}.")
