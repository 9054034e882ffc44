"""The device backend of the operator's wheels in real pods: either transfer, and an engine that is killed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from couchbase_lm_operator import names
from e2e.bootstrap import ROOT
from e2e.demo import stack
from e2e.demo.journey import Turn, Workload
from e2e.demo.prompt import Prompt, new_prompt
from e2e.images import registry
from tests.journey.conftest import PLACE, Installation
from tests.journey.node_process import kill_container, restarts
from tests.journey.waiting import until

EXAMPLE = ROOT / "examples" / "hostcpu.yaml"
BOUND = "Backend hostcpu: native operations bound: lmcache_memcpy_async, multi_layer_block_kv_transfer"
BASELINE = "torch baseline"
KV_SEGMENTS = "import glob; print(len(glob.glob('/dev/shm/lmcache_hostcpu_*_*')))"
_ROLLOUT_SECONDS = 400


class Backed:
    """The resource of the example, one pod."""

    def __init__(self, installation: Installation, name: str) -> None:
        self.kube = installation.kube
        self.workload = Workload(installation.kube, PLACE.name, name)
        self.served_model = stack.served_model(dict(self.workload.resource()))

    @property
    def pod(self) -> str:
        """Return the only pod."""
        (pod,) = self.workload.pods()
        return pod

    def status(self) -> dict[str, Any]:
        """Return the status of the resource."""
        resource: dict[str, Any] = self.workload.resource()
        return dict(resource["status"])

    def log(self, container: str) -> str:
        """Return the log of a container that runs now."""
        return self.kube.kubectl("logs", self.pod, "-n", PLACE.name, "-c", container)

    def set_transfer(self, mode: str) -> None:
        """Say who copies, and wait for the pod that does so."""
        if self.status()["transfer"]["mode"] == mode:
            return
        old = self.pod
        patch = f'{{"spec": {{"cache": {{"transfer": "{mode}"}}}}}}'
        self.kube.kubectl(
            *("patch", names.SHORT_NAME, self.workload.name, "-n", PLACE.name, "--type=merge", f"--patch={patch}")
        )
        until(lambda: self.workload.pods() not in ([], [old]), _ROLLOUT_SECONDS)
        self.kube.kubectl(
            *("wait", "--for=condition=Ready", f"pod/{self.pod}", "-n", PLACE.name, f"--timeout={_ROLLOUT_SECONDS}s"),
            timeout_seconds=_ROLLOUT_SECONDS + 15,
        )

    def computed(self, label: str, prompt: Prompt) -> Turn:
        """Ask what nobody has computed yet, and wait until it is in Couchbase."""
        chunk_tokens = self.status()["model"]["chunkSize"]
        turn = self.workload.ask(label, self.pod, self.served_model, prompt)
        assert turn.cached_tokens == 0
        self.workload.wait_until_stored(turn, turn.answer.prompt_tokens // chunk_tokens)
        return turn

    def segments(self) -> int:
        """Return how many KV caches of engines lie in the pod's shared memory."""
        command = (
            "exec",
            self.pod,
            "-n",
            PLACE.name,
            "-c",
            names.CONTAINER_LMCACHE,
            "--",
            "python3",
            "-c",
            KV_SEGMENTS,
        )
        return int(self.kube.kubectl(*command))


@pytest.fixture(scope="module")
def backed(session_installation: Installation) -> Iterator[Backed]:
    images = registry.load_locally()
    kube = session_installation.kube
    resource = stack.apply_example(kube, PLACE, images["engine-cpu"].reference, EXAMPLE)
    name = resource["metadata"]["name"]
    stack.wait_until_ready(kube, PLACE, name)
    yield Backed(session_installation, name)
    kube.kubectl("delete", names.SHORT_NAME, name, "-n", PLACE.name, "--timeout=120s")


@pytest.mark.engine
@pytest.mark.timeout(900)
def test_an_engine_that_was_killed_leaves_no_cache_in_shared_memory(backed: Backed) -> None:
    backed.set_transfer("LMCacheDriven")
    pod, before = backed.pod, backed.segments()
    assert before > 0
    computed = backed.computed("before it is killed", prompt := new_prompt())
    kill_container(backed.kube, PLACE.name, pod, names.CONTAINER_VLLM)
    until(lambda: restarts(backed.kube, PLACE.name, pod, names.CONTAINER_VLLM) == 1, 120)
    ready = ("wait", "--for=condition=Ready", f"pod/{pod}", "-n", PLACE.name, "--timeout=400s")
    backed.kube.kubectl(*ready, timeout_seconds=420)

    loaded = backed.workload.ask("after it was killed", pod, backed.served_model, prompt)

    assert loaded.answer.text == computed.answer.text
    assert loaded.cached_tokens > 0
    assert backed.segments() == before
    # the server lets go of the dead engine's memory: no page of it is mapped any more
    mapped = "print(sum('(deleted)' in line for line in open('/proc/1/maps') if 'lmcache_hostcpu_' in line))"
    command = ("exec", pod, "-n", PLACE.name, "-c", names.CONTAINER_LMCACHE, "--", "python3", "-c", mapped)
    until(lambda: int(backed.kube.kubectl(*command)) == 0, 240, every_seconds=5)


@pytest.mark.engine
@pytest.mark.timeout(1500)
def test_each_transfer_loads_what_an_earlier_pod_stored_with_it(backed: Backed) -> None:
    backed.set_transfer("LMCacheDriven")
    prompt = new_prompt()
    stored_by_lmcache = backed.computed("LMCache copies: computes", prompt)
    _copies_natively(backed, "lmcache_driven")

    # objects of the other transfer have other shapes: under a prefix of their own they are not even found
    backed.set_transfer("EngineDriven")
    stored_by_engine = backed.computed("vLLM copies: computes", prompt)
    _copies_natively(backed, "engine_driven")

    backed.set_transfer("LMCacheDriven")
    loaded_by_lmcache = backed.workload.ask("LMCache copies: reads", backed.pod, backed.served_model, prompt)
    _same_answer(stored_by_lmcache, loaded_by_lmcache)
    _copies_natively(backed, "lmcache_driven")

    backed.set_transfer("EngineDriven")
    loaded_by_engine = backed.workload.ask("vLLM copies: reads", backed.pod, backed.served_model, prompt)
    _same_answer(stored_by_engine, loaded_by_engine)
    _copies_natively(backed, "engine_driven")


def _copies_natively(backed: Backed, mode: str) -> None:
    for container in (names.CONTAINER_VLLM, names.CONTAINER_LMCACHE):
        log = backed.log(container)
        assert BOUND in log
        assert BASELINE not in log
    assert f"Creating transfer context (device_type=cpu, mode={mode})" in backed.log(names.CONTAINER_VLLM)


def _same_answer(first: Turn, second: Turn) -> None:
    assert second.answer.text == first.answer.text
    assert second.cached_tokens > 0.9 * first.answer.prompt_tokens - 256
    assert second.growth.l2_hit_tokens > 0
