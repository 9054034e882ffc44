"""Runs real vLLM (CPU) on a tiny random model, once for each mode of transfer, and prints the tokens it answers with.

``python tiny_engine.py MODEL RANKS MODE@PORT...``; mode ``none`` runs without LMCache. The model's folder is made when
it is missing.
"""

import json
import multiprocessing
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

CHUNK_TOKENS = 64
PROMPT_TOKENS = (200, 331, 515)
ANSWER_TOKENS = 12
_STORED_WITHIN_SECONDS = 60.0
_VOCABULARY = 512


def main() -> None:
    model, ranks, *modes = sys.argv[1:]
    if not Path(model).exists():
        make_model(model)
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    if int(ranks) > 1:
        (mode,) = modes
        answer(model, int(ranks), mode)
        return
    # vLLM takes most of its start to import itself, which processes that are forked off it share.
    import vllm  # noqa: F401
    from vllm.platforms import current_platform

    current_platform.register_triton_kernel_overrides()
    # vLLM does this once for each process, and fails when numba was loaded before: here LMCache loads it.
    type(current_platform).register_triton_kernel_overrides = classmethod(lambda _: None)
    for mode in modes:
        process = multiprocessing.get_context("fork").Process(target=answer, args=(model, 1, mode))
        process.start()
        process.join()
        if process.exitcode:
            sys.exit(f"mode {mode}: status {process.exitcode}")


def answer(model: str, ranks: int, mode: str) -> None:
    """Answer the same prompts twice and print what was answered and how many tokens were not computed.

    Stores go on after an answer, for as long as a busy machine takes; so the second round is asked again until it finds
    all whole chunks, and after a minute it is printed as it is.
    """
    from vllm import LLM, SamplingParams

    generator = random.Random(7)
    prompts = [
        {"prompt_token_ids": [generator.randrange(3, _VOCABULARY) for _ in range(length)]} for length in PROMPT_TOKENS
    ]
    sampling = SamplingParams(temperature=0, max_tokens=ANSWER_TOKENS, detokenize=False, ignore_eos=True)
    llm = LLM(
        model,
        skip_tokenizer_init=True,
        dtype="float32",
        enforce_eager=True,
        enable_prefix_caching=False,
        block_size=32,
        tensor_parallel_size=ranks,
        max_model_len=1024,
        max_num_batched_tokens=1024,
        max_num_seqs=4,
        **connector(mode),
    )

    def ask() -> dict[str, Any]:
        outputs = llm.generate(prompts, sampling, use_tqdm=False)
        answers = [list(output.outputs[0].token_ids) for output in outputs]
        return {"mode": mode, "answers": answers, "cached": [output.num_cached_tokens for output in outputs]}

    print("ANSWERED", json.dumps(ask()), flush=True)
    deadline = time.monotonic() + _STORED_WITHIN_SECONDS
    stored = [0 if mode == "none" else length // CHUNK_TOKENS * CHUNK_TOKENS for length in PROMPT_TOKENS]
    while (said := ask())["cached"] != stored and time.monotonic() < deadline:
        time.sleep(0.5)
    print("ANSWERED", json.dumps(said), flush=True)
    llm.llm_engine.engine_core.shutdown()


def connector(mode: str) -> dict[str, Any]:
    if mode == "none":
        return {}
    name, _, port = mode.partition("@")
    server = {"lmcache.mp.host": "tcp://localhost", "lmcache.mp.port": port, "lmcache.mp.mp_transfer_mode": name}
    return {
        "kv_transfer_config": {
            "kv_connector": "LMCacheMPConnector",
            "kv_connector_module_path": "lmcache.integration.vllm.lmcache_mp_connector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": server,
        }
    }


def make_model(folder: str) -> None:
    """Write a model whose answers depend on every token: weights are large enough for that."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=_VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=2048,
        initializer_range=0.2,
        bos_token_id=1,
        eos_token_id=2,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)


if __name__ == "__main__":
    main()
