"""What is wrong or unusual ends in the baseline's behaviour or an error, and never in a write elsewhere."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from lmcache import lmcache_native
from transfer_cases import FORMATS, Case, Memory, Run

from lmcache_hostcpu import library, native_ops
from lmcache_hostcpu.planes import DeclinedError

SPLIT = "NL_X_TWO_NB_NH_BS_HS"
FUSED = "NL_X_NB_NH_BS_CS"
PAGED, OBJECTS, IDS, DEVICE, DIRECTION, SHAPE, CHUNK, FORMAT, SKIP = range(9)


def outcome_of(transfer: Callable[..., None], run: Run, arguments: list[Any]) -> tuple[str, list[torch.Tensor]]:
    try:
        transfer(*arguments)
    except Exception as error:  # noqa: BLE001  # which error is what is compared
        return type(error).__name__, [one.clone() for one in run.bytes]
    return "done", [one.clone() for one in run.bytes]


def assert_as_baseline(case: Case, change: Callable[[list[Any], Run], None]) -> str:
    """Both must end alike: the same type of error, or the same bytes."""
    ours, theirs = Run(case), Run(case)
    our_arguments, their_arguments = ours.arguments(), theirs.arguments()
    change(our_arguments, ours)
    change(their_arguments, theirs)
    ending, our_bytes = outcome_of(native_ops.multi_layer_block_kv_transfer, ours, our_arguments)
    baseline = native_ops._torch_ops.multi_layer_block_kv_transfer
    expected, their_bytes = outcome_of(baseline, theirs, their_arguments)
    assert ending == expected
    assert all(torch.equal(our, their) for our, their in zip(our_bytes, their_bytes, strict=True))
    return ending


@pytest.mark.parametrize("is_store", [True, False], ids=["store", "load"])
@pytest.mark.parametrize("bad_id", [-1, 5, 1 << 40, -(1 << 62)])
@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_block_outside_the_cache_is_an_error_before_anything_is_written(
    name: str, bad_id: int, is_store: bool
) -> None:
    run = Run(Case(format=name, is_store=is_store, block_ids=(3, 0, 4, bad_id)))
    before = [one.clone() for one in run.bytes]
    with pytest.raises(IndexError, match=rf"block id {bad_id} at position 3 .* of 5 blocks; nothing was copied"):
        native_ops.multi_layer_block_kv_transfer(*run.arguments())
    assert all(torch.equal(one, other) for one, other in zip(run.bytes, before, strict=True))


def test_blocks_that_are_not_transferred_may_have_any_id() -> None:
    run = Run(Case(format=SPLIT, block_ids=(-7, 0, 4, 1, 99), skip_blocks=1))
    native_ops.multi_layer_block_kv_transfer(*run.arguments())


@pytest.mark.parametrize("is_store", [True, False], ids=["store", "load"])
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda a, _: a.__setitem__(PAGED, [torch.empty(0), torch.empty(0)]), id="no elements"),
        pytest.param(lambda a, _: a.__setitem__(PAGED, [None, None]), id="no tensors"),
        pytest.param(lambda a, _: a.__setitem__(PAGED, torch.zeros(2, dtype=torch.int64)), id="null addresses"),
        pytest.param(lambda a, _: a.__setitem__(OBJECTS, [0, 0]), id="null objects"),
        pytest.param(lambda a, _: a.__setitem__(OBJECTS, []), id="no objects"),
        pytest.param(lambda a, _: a.__setitem__(OBJECTS, tuple(a[OBJECTS])), id="objects in a tuple"),
        pytest.param(lambda a, _: a.__setitem__(OBJECTS, [o[:, :1] for o in a[OBJECTS]]), id="objects of one layer"),
        pytest.param(lambda a, _: a.__setitem__(OBJECTS, [o[:, :, :5] for o in a[OBJECTS]]), id="objects too short"),
        pytest.param(lambda a, _: a.__setitem__(OBJECTS, [o[..., :9] for o in a[OBJECTS]]), id="objects too narrow"),
        pytest.param(lambda a, _: a.__setitem__(OBJECTS, [o[..., 0] for o in a[OBJECTS]]), id="objects too flat"),
        pytest.param(lambda a, _: a.__setitem__(PAGED, [p[0] for p in a[PAGED]]), id="cache without V"),
        pytest.param(lambda a, _: a.__setitem__(PAGED, [a[PAGED][0], a[PAGED][1][:, :3]]), id="unequal layers"),
        pytest.param(
            lambda a, _: a.__setitem__(OBJECTS, [o.float() for o in a[OBJECTS]]), id="objects of another type"
        ),
        pytest.param(lambda a, _: a.__setitem__(SKIP, -1), id="negative prefix"),
        pytest.param(lambda a, _: a.__setitem__(SKIP, 4), id="everything skipped"),
        pytest.param(lambda a, _: a.__setitem__(IDS, []), id="no blocks"),
        pytest.param(lambda a, _: a.__setitem__(IDS, torch.tensor([3.0, 0.0, 4.0, 1.0])), id="ids that are floats"),
        pytest.param(lambda a, _: a.__setitem__(CHUNK, 0), id="no chunk"),
        pytest.param(lambda a, _: a.__setitem__(CHUNK, 7), id="chunk of part of a block"),
        pytest.param(lambda a, _: a.__setitem__(CHUNK, 16), id="chunk longer than the objects"),
        pytest.param(lambda a, _: setattr(a[SHAPE], "bs", 2), id="other block size announced"),
        pytest.param(lambda a, _: a.__setitem__(DIRECTION, 7), id="no direction"),
    ],
)
def test_wrong_arguments_end_as_in_the_baseline(change: Callable[[list[Any], Run], None], is_store: bool) -> None:
    assert_as_baseline(Case(format=SPLIT, is_store=is_store), change)


@pytest.mark.parametrize("is_store", [True, False], ids=["store", "load"])
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            lambda a, _: a.__setitem__(PAGED, [p.transpose(-1, -2) for p in a[PAGED]]), id="elements with gaps"
        ),
        pytest.param(lambda a, _: a.__setitem__(PAGED, [a[PAGED][0], a[PAGED][0]]), id="one layer twice"),
        pytest.param(lambda a, _: a.__setitem__(OBJECTS, [a[OBJECTS][0], a[OBJECTS][0]]), id="one object twice"),
        pytest.param(lambda a, _: a.__setitem__(IDS, torch.tensor(a[IDS], dtype=torch.int32)), id="ids of 32 bits"),
        pytest.param(
            lambda a, run: a.__setitem__(
                OBJECTS, [one.as_strided(one.shape, (*one.stride()[:2], 17, 1)) for one in _wider(run)]
            ),
            id="objects with gaps",
        ),
    ],
)
def test_unusual_arguments_have_the_baselines_result(change: Callable[[list[Any], Run], None], is_store: bool) -> None:
    # square blocks, so that swapping two axes leaves the sizes as they are
    case = Case(format=SPLIT, is_store=is_store, block_tokens=8, head_elements=8)
    assert assert_as_baseline(case, change) == "done"


def _wider(run: Run) -> list[torch.Tensor]:
    run.objects = [Memory.filled(16_000, seed=300 + number) for number in range(2)]
    return [memory.view(0, (2, 2, 16, 16), (600, 300, 17, 1), torch.bfloat16) for memory in run.objects]


def test_a_cache_that_writes_two_elements_to_one_place_is_refused_by_the_baseline() -> None:
    def expand(arguments: list[Any], run: Run) -> None:
        del run
        arguments[PAGED] = [one[:, :1].expand(-1, 5, -1, -1, -1) for one in arguments[PAGED]]

    assert assert_as_baseline(Case(format=SPLIT, is_store=False), expand) == "RuntimeError"


def test_a_tensor_whose_memory_was_given_back_is_not_touched() -> None:
    run = Run(Case(format=SPLIT))
    arguments = run.arguments()
    run.paged[1].content.untyped_storage().resize_(16)
    copied_before = library.load().copied_bytes()
    with pytest.raises(DeclinedError, match="no memory"):
        native_ops._transfer(
            native_ops._plan.Request(
                *arguments[:4],
                is_store=True,
                shape=arguments[SHAPE],
                chunk_tokens=arguments[CHUNK],
                spec=FORMATS[SPLIT],
                skip_blocks=0,
            )
        )
    assert library.load().copied_bytes() == copied_before


def test_an_unknown_format_is_the_baselines_error() -> None:
    arguments = Run(Case(format=FUSED)).arguments()
    arguments[FORMAT] = 12345
    with pytest.raises(ValueError, match="12345"):
        native_ops.multi_layer_block_kv_transfer(*arguments)


@pytest.mark.parametrize("size_bytes", [0, 1, 4096, 5 << 20])
@pytest.mark.parametrize("has_tensors", [True, False], ids=["tensors", "addresses"])
def test_memory_is_copied(size_bytes: int, has_tensors: bool) -> None:
    source, target = Memory.filled(size_bytes + 3, seed=1).content, Memory.filled(size_bytes + 3, seed=2).content
    expected = target.clone()
    expected[:size_bytes] = source[:size_bytes]
    ends = (target, source) if has_tensors else (target.data_ptr(), source.data_ptr())
    native_ops.lmcache_memcpy_async(*ends, size_bytes, lmcache_native.TransferDirection.D2H, 0, 4096)
    assert torch.equal(target, expected)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((1, 0, 8, 0, 0, 4096), ValueError),
        ((0, 1, 8, 1, 0, 4096), ValueError),
        ((1, 2, 8, 1, 0, 3), ValueError),
        ((1, 2, 8, 9, 0, 4096), ValueError),
        ((torch.zeros(4), 2, 8, 1, 0, 4096), TypeError),
        ((1.0, 2, 8, 1, 0, 4096), TypeError),
        ((torch.zeros(4), torch.zeros(4), 7, 1, 0, 4096), ValueError),
    ],
)
def test_a_wrong_copy_is_an_error(arguments: tuple[Any, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        native_ops.lmcache_memcpy_async(*arguments)


def test_tensors_that_need_converting_are_copied_as_the_baseline_copies_them() -> None:
    target = torch.zeros(8, dtype=torch.float32)
    native_ops.lmcache_memcpy_async(
        target, torch.arange(8, dtype=torch.float16), 32, lmcache_native.TransferDirection.H2D, 0, 1
    )
    assert target.tolist() == list(range(8))


def test_overlapping_memory_is_left_to_the_baseline() -> None:
    memory = torch.arange(64, dtype=torch.uint8)
    copied_before = library.load().copied_bytes()
    native_ops.lmcache_memcpy_async(
        memory.data_ptr(), memory.data_ptr() + 1, 32, lmcache_native.TransferDirection.H2D, 0, 1
    )
    assert library.load().copied_bytes() == copied_before
