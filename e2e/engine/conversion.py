"""Turn a llama-family GGUF file into a Hugging Face model folder. Runs in the engine's environment.

Names and layout of tensors follow llama.cpp's `convert_hf_to_gguf.py`, read backwards; the metadata keys are those of
the GGUF specification (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

_OUTER_TENSORS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_CONTROL_TOKEN = 3


Values = npt.NDArray[np.float32]


class Metadata:
    """The key-value section of a GGUF file."""

    def __init__(self, reader: GGUFReader) -> None:
        self._fields = reader.fields

    def __getitem__(self, key: str) -> Any:
        return self._fields[key].contents()

    def get(self, key: str) -> Any | None:
        """Return the value of a key, or None where the file lacks it."""
        return self[key] if key in self._fields else None


def main() -> None:
    """Read one GGUF file and write weights, configuration and tokenizer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="the GGUF file")
    parser.add_argument("target", type=Path, help="the folder to make")
    arguments = parser.parse_args()
    arguments.target.mkdir(parents=True)
    reader = GGUFReader(arguments.source)
    metadata = Metadata(reader)
    weights = read_weights(reader, metadata)
    save_file(weights, arguments.target / "model.safetensors", metadata={"format": "pt"})
    config = model_config(metadata, has_own_head="lm_head.weight" in weights)
    (arguments.target / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    build_tokenizer(metadata).save_pretrained(arguments.target)


def read_weights(reader: GGUFReader, metadata: Metadata) -> dict[str, torch.Tensor]:
    """Dequantise every tensor to bfloat16 under its Hugging Face name."""
    heads = {"attn_q": metadata["llama.attention.head_count"], "attn_k": metadata["llama.attention.head_count_kv"]}
    weights = {}
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        name = _OUTER_TENSORS.get(tensor.name)
        if name is None:
            _, layer, part, _ = tensor.name.split(".")
            name = f"model.layers.{layer}.{_LAYER_TENSORS[part]}.weight"
            if part in heads:
                values = _interleaved_to_halves(values, heads[part])
        weights[name] = torch.from_numpy(np.array(values, order="C")).to(torch.bfloat16)
    return weights


def _interleaved_to_halves(values: Values, heads: int) -> Values:
    # llama.cpp keeps the two rotary halves of a head in alternating rows; Hugging Face keeps them one after the other.
    rows = values.shape[0]
    return values.reshape(heads, rows // heads // 2, 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def model_config(metadata: Metadata, *, has_own_head: bool) -> dict[str, Any]:
    """Return config.json of a llama decoder."""
    hidden, heads = metadata["llama.embedding_length"], metadata["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": metadata["llama.feed_forward_length"],
        "num_hidden_layers": metadata["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": metadata["llama.attention.head_count_kv"],
        "head_dim": hidden // heads,
        "vocab_size": len(metadata["tokenizer.ggml.tokens"]),
        "max_position_embeddings": metadata["llama.context_length"],
        "rms_norm_eps": metadata["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": metadata["llama.rope.freq_base"],
        "tie_word_embeddings": not has_own_head,
        "torch_dtype": "bfloat16",
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
        "pad_token_id": metadata["tokenizer.ggml.padding_token_id"],
    }


def build_tokenizer(metadata: Metadata) -> PreTrainedTokenizerFast:
    """Return the byte-level BPE tokenizer that the file's vocabulary and merges describe (digits stand alone)."""
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in control])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=tokens[metadata["tokenizer.ggml.bos_token_id"]],
        eos_token=tokens[metadata["tokenizer.ggml.eos_token_id"]],
        pad_token=tokens[metadata["tokenizer.ggml.padding_token_id"]],
        chat_template=metadata.get("tokenizer.chat_template"),
    )


if __name__ == "__main__":
    main()
