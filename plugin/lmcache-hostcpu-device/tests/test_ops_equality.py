"""The native transfers leave every byte as LMCache's torch baseline leaves it."""

import dataclasses

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from transfer_cases import FORMATS, Case, Run

from lmcache_hostcpu import library, native_ops

TYPES = (torch.uint8, torch.int8, torch.float8_e4m3fn, torch.float16, torch.bfloat16, torch.float32)
# What the baseline takes by address; pairs of tensors only come as tensors.
BY_ADDRESS = [name for name, spec in FORMATS.items() if not spec.is_kv_second_tuple and not name.endswith("TWO_HS")]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    name = draw(st.sampled_from(sorted(FORMATS)))
    blocks = draw(st.integers(1, 8))
    blocks_per_object = draw(st.integers(1, 4))
    objects = draw(st.integers(1, 3))
    capacity = objects * blocks_per_object
    block_ids = tuple(draw(st.lists(st.integers(0, blocks - 1), min_size=1, max_size=capacity + 2)))
    has_pointers = name in BY_ADDRESS and draw(st.booleans())
    dtype = draw(st.sampled_from(TYPES))
    fused = FORMATS[name].is_fused_packed
    return Case(
        format=name,
        layers=draw(st.integers(1, 4)),
        blocks=blocks,
        block_tokens=draw(st.sampled_from((1, 2, 3, 8, 16))),
        heads=draw(st.integers(1, 4)),
        head_elements=draw(st.integers(1, 20)) * (2 if fused else 1),
        dtype=dtype,
        is_store=draw(st.booleans()),
        blocks_per_object=blocks_per_object,
        objects=objects,
        block_ids=block_ids,
        skip_blocks=draw(st.integers(0, min(len(block_ids), capacity) - 1)),
        arrangement="dense" if has_pointers else draw(st.sampled_from(("dense", "padded", "pool"))),
        shift_bytes=draw(st.integers(0, 9)) * dtype.itemsize,
        has_pointers=has_pointers,
        object_pointers=name in BY_ADDRESS and draw(st.booleans()),
        ids_as_tensor=draw(st.booleans()),
        plane_widths=tuple(draw(st.lists(st.integers(1, 20), min_size=1, max_size=3))),
    )


def assert_equal_to_baseline(case: Case) -> None:
    """Run both, on equal memory, and compare all of it."""
    ours, theirs = Run(case), Run(_as_bytes_of(case))
    theirs.run_baseline()
    copied_before = library.load().copied_bytes()
    native_ops.multi_layer_block_kv_transfer(*ours.arguments())
    assert library.load().copied_bytes() - copied_before == case.moved_bytes, "it was left to the baseline"
    for number, (our, their) in enumerate(zip(ours.bytes, theirs.bytes, strict=True)):
        assert torch.equal(our, their), f"allocation {number} differs"


def _as_bytes_of(case: Case) -> Case:
    # torch has no index_select for 8-bit floats on the CPU: the baseline moves them as bytes
    return dataclasses.replace(case, dtype=torch.uint8) if case.dtype is torch.float8_e4m3fn else case


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases())
def test_every_byte_is_as_the_baseline_leaves_it(case: Case) -> None:
    assume(case.moved_bytes or case.dtype is not torch.float8_e4m3fn)  # what is left to it has to be in its power
    assert_equal_to_baseline(case)


@pytest.mark.parametrize("is_store", [True, False], ids=["store", "load"])
@pytest.mark.parametrize("name", sorted(FORMATS))
@pytest.mark.parametrize("shift_bytes", [0, 6], ids=["aligned", "unaligned"])
def test_large_transfers_by_many_threads_are_equal(name: str, is_store: bool, shift_bytes: int) -> None:
    ids = tuple(torch.randperm(64, generator=torch.Generator().manual_seed(7)).tolist())[:48]
    case = Case(
        format=name,
        layers=6,
        blocks=64,
        block_tokens=16,
        heads=4,
        head_elements=512 if FORMATS[name].is_mla else 128,
        is_store=is_store,
        blocks_per_object=16,
        objects=3,
        block_ids=ids,
        skip_blocks=5,
        shift_bytes=shift_bytes,
        plane_widths=(512, 64),
    )
    assert case.moved_bytes > 4 << 20, "as large as those that go past the caches"
    assert_equal_to_baseline(case)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_the_last_of_two_writes_to_a_block_stays(name: str) -> None:
    assert_equal_to_baseline(
        Case(format=name, is_store=False, blocks_per_object=2, objects=3, block_ids=(1, 2, 1, 0, 2, 2), skip_blocks=1)
    )
