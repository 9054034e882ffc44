"""`lmcb size`: the numbers for programs, the report for people, and that it answers at once."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner

from couchbase_lm_operator.__main__ import main
from tests.core import planning
from tests.core.planning import spec_dict
from tests.model_hub import COMMIT, running_hub

if TYPE_CHECKING:
    from pathlib import Path

# what the command promises; more keys may come
KEYS = {
    "modelType",
    "architecture",
    "evidence",
    "attentionBytesPerTokenPerRank",
    "stateBytesPerRank",
    "blockTokens",
    "chunkTokens",
    "objectBytes",
    "ranks",
    "documentsPerChunk",
    "bytesPerContext",
    "l1Bytes",
    "shmBytes",
    "quotaBytes",
    "keyPrefixFingerprint",
}
HEAVY = {"torch", "vllm", "lmcache", "kopf", "kubernetes", "pydantic", "jinja2", "httpx", "couchbase"}
MIB, GIB = 1 << 20, 1 << 30
QWEN3_8B = planning.QWEN3_8B | {"architectures": ["Qwen3ForCausalLM"]}


def size(*arguments: str, config: dict[str, Any] = QWEN3_8B) -> str:
    result = CliRunner().invoke(main, ["size", "--config", "-", *arguments], input=json.dumps(config))
    assert result.exit_code == 0, result.output
    return result.stdout


def answer(*arguments: str, config: dict[str, Any] = QWEN3_8B) -> dict[str, Any]:
    found = json.loads(size(*arguments, "-o", "json", config=config))
    assert isinstance(found, dict)
    return found


def test_the_numbers_for_programs() -> None:
    found = answer("--tokens-per-context", "10288", "--contexts", "1000")
    assert found.keys() >= KEYS
    assert found["modelType"] == "qwen3"
    assert found["architecture"] == "Qwen3ForCausalLM"
    assert (found["attentionBytesPerTokenPerRank"], found["stateBytesPerRank"]) == (147_456, 0)
    assert (found["blockTokens"], found["chunkTokens"], found["ranks"]) == (16, 256, 1)
    assert found["objectBytes"] == [36 * MIB]
    assert found["documentsPerChunk"] == 37
    assert found["documentsPerContext"] == 1480
    assert found["bytesPerContext"] == 40 * 36 * MIB
    # 40960 tokens fit whole into what is free above the watermark
    assert found["l1Bytes"] == 31 * GIB
    # a thousand contexts in four fifths of the quota
    assert found["quotaBytes"] * 0.8 == pytest.approx(1000 * 40 * 36 * MIB, rel=0.001)


def test_yaml_says_the_same() -> None:
    assert yaml.safe_load(size("-o", "yaml")) == answer()


def test_flags_reach_the_numbers() -> None:
    plain = answer()
    split = answer("--tensor-parallel-size", "4", "--pipeline-parallel-size", "2", "--kv-cache-dtype", "fp8")
    assert split["ranks"] == 8
    assert split["attentionBytesPerTokenPerRank"] == 147_456 // 16
    assert answer("--platform", "cpu")["blockTokens"] == 128
    assert answer("--dtype", "float32")["objectBytes"] == [72 * MIB]
    assert answer("--block-size", "64")["blockTokens"] == 64
    assert answer("--chunk-size", "512")["objectBytes"] == [72 * MIB]
    assert answer("--max-model-len", "8192")["l1Bytes"] < plain["l1Bytes"]
    stretched = {**QWEN3_8B, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    assert answer("--max-model-len", "80000", config=stretched)["l1Bytes"] > plain["l1Bytes"]
    doubled = answer("--bucket-replicas", "1", "--data-nodes", "3")
    assert doubled["quotaBytes"] == pytest.approx(2 * plain["quotaBytes"], rel=0.001)
    assert doubled["quotaBytesPerNode"] == doubled["quotaBytes"] // 3


def test_the_fingerprint_changes_with_the_bytes_and_only_then() -> None:
    plain = answer()["keyPrefixFingerprint"]
    assert answer("--kv-cache-dtype", "fp8")["keyPrefixFingerprint"] != plain
    assert answer("--chunk-size", "512")["keyPrefixFingerprint"] != plain
    assert answer("--contexts", "7", "--tokens-per-context", "9000")["keyPrefixFingerprint"] == plain
    assert answer("--tensor-parallel-size", "2")["keyPrefixFingerprint"] == plain


def test_a_model_that_is_not_on_the_list_with_the_numbers_of_a_person() -> None:
    config = {"model_type": "brand_new", "max_position_embeddings": 32768, "torch_dtype": "bfloat16"}
    found = answer("--override-kv-bytes-per-token", "100000", "--override-block-size", "48", config=config)
    assert found["evidence"] == "override"
    assert (found["blockTokens"], found["chunkTokens"]) == (48, 288)
    assert found["objectBytes"] == [28_800_000]
    assert found["conversation"]["worthwhile"] is None


def test_the_report_tells_what_a_conversation_costs_and_whether_it_pays_off() -> None:
    told = size()
    assert "A conversation of 10,000 tokens" in told
    assert "1.37 GiB in 1,443 documents" in told
    assert "9,984 tokens in 39 chunks; 16 are always computed" in told
    assert "conversations into the bucket's 141 GiB" in told
    assert "pays off       yes; loading is faster above 1.3 GB/s" in told
    assert "256 tokens is" in told
    rows = {line.split()[0] for line in told.splitlines() if line.strip()}
    assert rows >= KEYS - {"modelType", "architecture"}


def test_rates_decide_whether_it_pays_off() -> None:
    slow = answer("--load-gigabytes-per-second", "0.1")["conversation"]
    assert slow["worthwhile"] is False
    assert slow["loadSeconds"] == 15.0
    fast = answer("--load-gigabytes-per-second", "0.1", "--prefill-teraflops", "5")["conversation"]
    assert fast["worthwhile"] is True
    assert fast["prefillSeconds"] == 34.0


def test_layers_of_several_kinds_are_sized_for_copies_by_lmcache_and_it_says_so() -> None:
    windows = QWEN3_8B | {
        "model_type": "gemma3_text",
        "architectures": ["Gemma3ForCausalLM"],
        "sliding_window": 1024,
        "layer_types": ["sliding_attention", "full_attention"] * 18,
    }
    assert any("copies by LMCache itself" in each for each in answer(config=windows)["warnings"])
    assert answer()["warnings"] == []


def test_a_conversation_shorter_than_a_chunk_is_not_cached() -> None:
    told = size("--tokens-per-context", "200")
    assert "never cached" in told


def test_a_model_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with running_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.body = json.dumps(QWEN3_8B).encode()
        result = CliRunner().invoke(main, ["size", "--model", "team/model", "--revision", COMMIT, "-o", "json"])
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout) == answer()
        assert hub.paths == [f"/team/model/resolve/{COMMIT}/config.json"]
        assert hub.tokens == ["Bearer hf_secret"]


def test_what_is_refused_names_the_option() -> None:
    for arguments, said in (
        (("--chunk-size", "100"), "--chunk-size 100"),
        (("--tensor-parallel-size", "3"), "--tensor-parallel-size 3"),
        (("--max-model-len", "99999"), "--max-model-len 99999"),
    ):
        result = CliRunner().invoke(main, ["size", "--config", "-", *arguments], input=json.dumps(QWEN3_8B))
        assert result.exit_code == 3, result.output
        assert said in result.output
        assert "spec." not in result.output


def test_it_imports_nothing_heavy_and_starts_at_once(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN3_8B))
    program = (
        "import json, sys, time\n"
        "from couchbase_lm_operator.__main__ import main\n"
        f"sys.argv = ['lmcb', 'size', '--config', {str(tmp_path / 'config.json')!r}, '-o', 'json']\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as end:\n"
        "    assert not end.code\n"
        "loaded = sorted({name.partition('.')[0] for name in sys.modules})\n"
        "print(json.dumps([loaded, time.process_time()]), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["modelType"] == "qwen3"
    loaded, cpu_seconds = json.loads(done.stderr)
    assert not HEAVY & set(loaded)
    assert cpu_seconds < 0.5


@pytest.mark.parametrize(
    ("engine", "vendor", "arguments"),
    [
        ({}, "NVIDIA", ()),
        (
            {"tensorParallelSize": 4, "kvCacheDtype": "fp8"},
            "NVIDIA",
            ("--tensor-parallel-size=4", "--kv-cache-dtype=fp8"),
        ),
        (
            {"pipelineParallelSize": 2, "maxModelLen": 9000},
            "CPU",
            ("--pipeline-parallel-size=2", "--max-model-len=9000"),
        ),
        ({"dtype": "float32", "maxModelLen": 9000}, "CPU", ("--dtype=float32", "--max-model-len=9000")),
    ],
    ids=["plain", "split", "piped", "wide"],
)
def test_a_plan_of_a_resource_has_the_same_numbers(
    tmp_path: Path, engine: dict[str, Any], vendor: str, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN3_8B))
    resource = {
        "apiVersion": "lmcache-couchbase.io/v1alpha1",
        "kind": "LMCacheCouchbase",
        "metadata": {"name": "same"},
        "spec": spec_dict(engine=engine, accelerator={"vendor": vendor}),
    }
    command = ["plan", "-", "--model-config", str(tmp_path / "config.json"), "-o", "json"]
    planned = CliRunner().invoke(main, command, input=yaml.safe_dump(resource))
    assert planned.exit_code == 0, planned.output
    numbers = json.loads(planned.stdout)["numbers"]
    found = answer("--platform", {"NVIDIA": "cuda", "CPU": "cpu"}[vendor], *arguments)
    assert numbers == {name: found[name] for name in numbers}
