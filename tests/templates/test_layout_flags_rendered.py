"""The pods carry the flags that the layout of a model needs, each program its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from couchbase_lm_operator.core.engine import engine_values
from couchbase_lm_operator.core.model import model_shape
from couchbase_lm_operator.core.pod_template.pod import pod
from couchbase_lm_operator.core.pod_template.pod_inputs import PodInputs
from couchbase_lm_operator.core.refusal import RefusedError
from couchbase_lm_operator.core.sizing import sizing
from couchbase_lm_operator.core.sizing.transfer import LMCACHE_DRIVEN, Transfer
from tests.core.planning import RELEASE, config_of, container, flag_value, plan_of, rendered, spec_of
from tests.core.tiny_models import DENSE, LATENT, RECURRENT, SLIDING, SPARSE

if TYPE_CHECKING:
    from couchbase_lm_operator.core.pod_template.workload import Pod

WINDOWS_IN_FULL = "--disable-hybrid-kv-cache-manager"


@pytest.mark.parametrize(
    ("vendor", "content", "backend", "block"),
    [
        ("NVIDIA", DENSE, "FLASH_ATTN", "16"),
        ("NVIDIA", LATENT, "FLASHMLA", "64"),
        ("CPU", DENSE, "CPU_ATTN", "128"),
        ("CPU", LATENT, "CPU_MLA", "16"),
    ],
)
def test_kernels_and_block_fit_the_attention_and_the_device(
    vendor: str, content: dict[str, Any], backend: str, block: str
) -> None:
    vllm = container(rendered(spec_of(accelerator={"vendor": vendor}), content), "vllm")
    assert flag_value(vllm, "--attention-backend") == backend
    assert flag_value(vllm, "--block-size") == block


def test_users_choose_other_kernels_with_their_block() -> None:
    spec = spec_of(engine={"attentionBackend": "CUTLASS_MLA"})
    assert flag_value(container(rendered(spec, LATENT), "vllm"), "--block-size") == "128"


def test_windows_are_kept_in_full_only_where_a_model_mixes_them() -> None:
    manifests = rendered(spec_of(), SLIDING)
    assert WINDOWS_IN_FULL in container(manifests, "vllm")["args"]
    assert "--separate-object-groups" not in container(manifests, "lmcache")["args"]
    assert WINDOWS_IN_FULL not in container(rendered(spec_of(), DENSE), "vllm")["args"]
    # a flag of its own, between whole pairs
    arguments = container(manifests, "vllm")["args"]
    assert arguments[arguments.index(WINDOWS_IN_FULL) + 1].startswith("--")


def test_sparse_attention_keeps_its_type_on_every_gpu() -> None:
    spec, shape = spec_of(), model_shape.read_shape(SPARSE, "test")
    layout = engine_values.resolve(spec, shape, config_of(SPARSE), RELEASE).layout
    assert (layout.kv_cache_dtype, layout.attention_backend, layout.block_size) == ("bfloat16", "FLASHMLA_SPARSE", 64)


def _recurrent_pod(*extra_args: str) -> Pod:
    """Return the pod of a model with states, whatever transfer will carry it."""
    spec, config = spec_of(engine={"extraArgs": list(extra_args)}), config_of(RECURRENT)
    shape = model_shape.read_shape(RECURRENT, "test")
    values = engine_values.resolve(spec, shape, config, RELEASE)
    sized = sizing.size(shape, sizing.SizingInputs(engine=values.layout, is_engine_driven=False))
    dense = plan_of(spec_of(), DENSE)
    transfer = Transfer(LMCACHE_DRIVEN, "whatever", values.layout)
    return pod(PodInputs(spec, "demo", values, sized, dense.couchbase, dense.key_prefix, transfer, RELEASE))


def test_states_are_cached_at_the_edges_of_blocks_in_objects_of_their_own() -> None:
    found = _recurrent_pod()
    engine, sidecar = list(found.engine.args), list(found.sidecar.args)
    block = int(engine[engine.index("--max-num-batched-tokens") + 1])
    assert engine[engine.index("--mamba-cache-mode") + 1] == "align"
    chunk = int(sidecar[sidecar.index("--chunk-size") + 1])
    assert chunk <= block
    assert sidecar[sidecar.index("--separate-object-groups") + 1] == "--l2-adapter"
    assert WINDOWS_IN_FULL not in engine


def test_a_batch_below_one_block_is_refused_by_its_field() -> None:
    with pytest.raises(RefusedError, match=r"spec\.engine\.extraArgs: --max-num-batched-tokens 100 is below"):
        _recurrent_pod("--max-num-batched-tokens", "100")


def test_states_are_not_cached_without_prefix_caching() -> None:
    with pytest.raises(RefusedError, match=r"spec\.engine\.extraArgs has --no-enable-prefix-caching"):
        _recurrent_pod("--no-enable-prefix-caching")


def test_the_type_of_states_that_users_chose_counts() -> None:
    smaller = _recurrent_pod("--mamba-ssm-cache-dtype", "bfloat16", "--mamba-cache-dtype", "bfloat16")
    larger = _recurrent_pod("--mamba-ssm-cache-dtype", "float32")
    blocks = [
        int(each.engine.args[each.engine.args.index("--max-num-batched-tokens") + 1]) for each in (smaller, larger)
    ]
    assert blocks[0] < blocks[1]


def test_a_batch_that_users_gave_stands_once_and_counts() -> None:
    found = _recurrent_pod("--max-num-batched-tokens=16k")
    assert [each for each in found.engine.args if each.startswith("--max-num-batched")] == [
        "--max-num-batched-tokens=16k"
    ]
    assert "--mamba-cache-mode" in found.engine.args
