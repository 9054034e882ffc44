"""Arguments of users that say something about the layout are read as vLLM reads them."""

from __future__ import annotations

import pytest

from couchbase_lm_operator.core.engine.layout_flags import LayoutFlags, read_layout_flags
from couchbase_lm_operator.core.refusal import RefusedError


@pytest.mark.parametrize(
    ("arguments", "tokens"),
    [
        (["--max-num-batched-tokens", "4096"], 4096),
        (["--max-num-batched-tokens=4096"], 4096),
        (["--max_num_batched_tokens=8k"], 8000),
        (["--max-num-batched", "8K"], 8192),
        (["--seed", "1", "--max-num-batched-tokens", "1", "--max-num-batched-tokens=1.5k"], 1500),
        (["--max-num-seqs", "4"], None),
        ([], None),
    ],
)
def test_the_batch_is_read_in_every_spelling(arguments: list[str], tokens: int | None) -> None:
    assert read_layout_flags(arguments) == LayoutFlags(max_num_batched_tokens=tokens)


@pytest.mark.parametrize("value", ["many", "0", "-1", "$(BATCH)", "1.5K", "9" * 40])
def test_a_batch_that_cannot_be_read_is_refused_by_position(value: str) -> None:
    with pytest.raises(RefusedError, match=r"spec\.engine\.extraArgs\[1\] is --max-num-batched-tokens"):
        read_layout_flags(["--enforce-eager", f"--max-num-batched-tokens={value}"])


def test_a_flag_without_its_value_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"spec\.engine\.extraArgs\[0\] is --mamba-cache-dtype without a value"):
        read_layout_flags(["--mamba-cache-dtype"])


def test_types_of_states_are_read_and_auto_says_nothing() -> None:
    flags = read_layout_flags(["--mamba-ssm-cache-dtype", "bfloat16", "--mamba_cache_dtype=auto"])
    assert (flags.mamba_ssm_cache_dtype, flags.mamba_cache_dtype) == ("bfloat16", None)


@pytest.mark.parametrize(
    ("arguments", "off"),
    [
        (["--no-enable-prefix-caching"], ("--no-enable-prefix-caching",)),
        (["--no-enable-prefix"], ("--no-enable-prefix-caching",)),
        (["--no_enable_chunked_prefill", "--max-num-seqs", "1"], ("--no-enable-chunked-prefill",)),
        (["--no-enable-prefix-caching", "--enable-prefix-caching"], ()),
        (["--enable-chunked-prefill"], ()),
    ],
)
def test_what_states_cannot_do_without_is_refused_only_for_recurrent_layers(
    arguments: list[str], off: tuple[str, ...]
) -> None:
    flags = read_layout_flags(arguments)
    assert flags.switched_off == off
    if off:
        with pytest.raises(RefusedError, match=off[0]):
            flags.refuse_for_recurrent_layers()
    else:
        flags.refuse_for_recurrent_layers()
