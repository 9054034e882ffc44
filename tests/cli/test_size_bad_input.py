"""`lmcb size` given what is wrong: one sentence that names it, exit code 2 (or 3 for models it cannot size)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from couchbase_lm_operator.__main__ import main
from tests.model_hub import running_hub

if TYPE_CHECKING:
    from pathlib import Path

HUGE = 10**30
QWEN3_8B = {
    "model_type": "qwen3",
    "hidden_size": 4096,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16",
}


def size(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(main, ["size", *arguments], input=text)


def assert_one_sentence(result: Result, code: int, *said: str) -> None:
    assert result.exit_code == code, result.output
    told = [line for line in result.output.splitlines() if line.startswith("Error: ")]
    assert len(told) == 1, result.output
    assert result.output.rstrip().endswith(told[0]), result.output
    assert told[0].endswith((".", "?", ")")), told[0]
    for each in said:
        assert each in told[0]
    # the longest one names every model type that is known
    assert len(told[0]) < 2000, told[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not JSON"),
        ("not json", "is not JSON"),
        ('{"model_type": "llama",}', "line 1"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "not an object"),
        ("null", "not an object"),
        ("7", "not an object"),
        ('"llama"', "not an object"),
        ("{}", "model_type"),
        ('{"model_type": ["llama"]}', "model_type"),
        ('{"model_type": "llama"}', "is missing"),
    ],
    ids=range(11),
)
def test_what_is_no_config(text: str, said: str) -> None:
    assert_one_sentence(size("--config", "-", text=text), 2, said)


@pytest.mark.parametrize("field", ["num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"])
@pytest.mark.parametrize("value", [0, -1, HUGE, "36", 1.5, True, [36], {}, float("nan"), float("inf")], ids=str)
def test_a_number_of_the_config_that_is_none(field: str, value: Any) -> None:
    result = size("--config", "-", text=json.dumps({**QWEN3_8B, field: value}))
    assert_one_sentence(result, 2, field)


@pytest.mark.parametrize("value", [0, -1, HUGE, "40960", 1.5, True], ids=str)
def test_a_longest_context_that_is_none(value: Any) -> None:
    text = json.dumps({**QWEN3_8B, "max_position_embeddings": value})
    assert_one_sentence(size("--config", "-", text=text), 2, "max_position_embeddings")


@pytest.mark.parametrize(
    "arguments",
    [
        *[
            (f"--{name}", value)
            for name in (
                *("tensor-parallel-size", "pipeline-parallel-size", "decode-context-parallel-size", "block-size"),
                *("chunk-size", "max-model-len", "contexts", "tokens-per-context", "data-nodes"),
                "override-kv-bytes-per-token",
            )
            for value in ("0", "-1", str(HUGE), "many", "1.5", "")
        ],
        *[(f"--{name}", value) for name in ("bucket-replicas", "num-speculative-layers") for value in ("-1", "9999")],
        *[
            (f"--{name}", value)
            for name in ("load-gigabytes-per-second", "prefill-teraflops")
            for value in ("0", "-1", "nan", "inf", "fast", "1e99")
        ],
        ("--kv-cache-dtype", "int3"),
        ("--dtype", "complex64"),
        ("--platform", "tpu"),
        ("--attention-backend", "no such"),
        ("--speculative-method", "good luck"),
        ("--output", "xml"),
        ("--tensor_parallel_size", "2"),
        ("--vendor", "CPU"),
        ("--block-sise", "16"),
    ],
    ids=" ".join,
)
def test_an_option_that_is_none(arguments: tuple[str, str]) -> None:
    result = size("--config", "-", *arguments, text=json.dumps(QWEN3_8B))
    assert_one_sentence(result, 2, arguments[0])


def test_one_source_and_only_one() -> None:
    assert_one_sentence(size(), 2, "--config", "--model")
    assert_one_sentence(size("--config", "-", "--model", "a/b", text="{}"), 2, "--config", "--model")
    assert_one_sentence(size("--config", "-", "--revision", "main", text=json.dumps(QWEN3_8B)), 2, "--revision")


def test_more_replicas_than_nodes_can_hold() -> None:
    arguments = ("--bucket-replicas", "2", "--data-nodes", "2")
    assert_one_sentence(size("--config", "-", *arguments, text=json.dumps(QWEN3_8B)), 2, "--data-nodes", "3")


def test_half_an_override() -> None:
    result = size("--config", "-", "--override-kv-bytes-per-token", "1024", text=json.dumps({"model_type": "new"}))
    assert_one_sentence(result, 2, "--override-block-size")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert_one_sentence(size("--config", str(tmp_path / "none.json")), 2, "none.json")
    assert_one_sentence(size("--config", str(tmp_path)), 2, str(tmp_path), "directory")
    assert_one_sentence(size("--config", "a\0b"), 2)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe{}")
    assert_one_sentence(size("--config", str(tmp_path / "bytes")), 2, "UTF-8")


def test_a_file_of_100_megabytes_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(100 << 20)
    assert_one_sentence(size("--config", str(path)), 2, "larger than 16 MiB")
    # a source without an end is one that is too large
    assert_one_sentence(size("--config", "/dev/zero"), 2, "larger than 16 MiB")


@pytest.mark.parametrize("model_type", ["mamba2", "falcon_h1", "minicpm3", "zamba2", "bert", "brand_new"])
def test_a_model_that_is_not_on_the_list_gets_no_number(model_type: str) -> None:
    result = size("--config", "-", "-o", "json", text=json.dumps({**QWEN3_8B, "model_type": model_type}))
    assert_one_sentence(result, 3, "ModelNotSupported", model_type)
    assert "{" not in result.output


def test_what_the_hub_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with running_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.status, hub.error_code = 404, "RevisionNotFound"
        result = size("--model", "team/model", "--revision", "gone")
        assert_one_sentence(result, 2, "--revision", "gone")
        hub.error_code = "RepoNotFound"
        assert_one_sentence(size("--model", "team/model"), 2, "--model")
        assert_one_sentence(size("--model", "not a name"), 2, "--model")
        hub.status, hub.error_code = 401, "GatedRepo"
        assert_one_sentence(size("--model", "team/model"), 2, "HF_TOKEN")
        hub.status, hub.error_code = 503, ""
        result = size("--model", "team/model")
        assert_one_sentence(result, 1, "503")
        assert "hf_secret" not in result.output
    assert_one_sentence(size("--model", "team/model"), 1)
