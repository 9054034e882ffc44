"""Things die: requests go on, nothing hangs, and everything comes back by itself."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import httpx
import pytest

from couchbase_lm_operator import names
from e2e.demo.chat import ask
from e2e.demo.journey import SERVING_PORT
from e2e.demo.kube import DemoError
from e2e.demo.metrics import read_counters
from e2e.demo.prompt import new_prompt
from tests.journey.conftest import Installation
from tests.journey.node_process import Loopback, is_running, kill_container, process, restarts
from tests.journey.waiting import until

LONGEST_WAIT_SECONDS = 45
# from the moment that the new LMCache server answers; how long Kubernetes and Python take to start one is not ours,
# and two engines and the tests share two cores here
SHARED_MEMORY_WITHIN_SECONDS = 30
ANSWERS_WITHIN_SECONDS = 90
OUTAGE_SECONDS = 75
DROPS_WITHIN_SECONDS = 6
ENDPOINT_REMOVAL_SECONDS = 5
LONG_TASK = "Write down all numbers from one to two hundred as words."
# of a grace period of 120 s
STARTING_POD_ENDS_WITHIN_SECONDS = 60


@pytest.mark.engine
@pytest.mark.timeout(600)
def test_killed_engine_comes_back_while_the_other_replica_answers(installation: Installation) -> None:
    place, (victim, other) = installation.place.name, installation.workload.pods()[:2]

    before = restarts(installation.kube, place, victim, names.CONTAINER_VLLM)

    kill_container(installation.kube, place, victim, names.CONTAINER_VLLM)

    with installation.kube.forward(place, f"pod/{other}", SERVING_PORT) as url:
        assert ask(url, installation.served_model, "Say hello.").text
    until(lambda: restarts(installation.kube, place, victim, names.CONTAINER_VLLM) == before + 1, 60)
    installation.wait_until_healthy()


@pytest.mark.engine
@pytest.mark.timeout(600)
def test_killed_idle_sidecar_fails_no_request_and_serves_from_couchbase_again(
    installation: Installation, record_property: Callable[[str, object], None], capsys: pytest.CaptureFixture[str]
) -> None:
    place, (victim, other) = installation.place.name, installation.workload.pods()[:2]
    prompt, is_back = new_prompt(tokens=1500), threading.Event()
    computed = installation.workload.ask("the other pod computes", other, installation.served_model, prompt)
    chunk_tokens = int(installation.resource()["status"]["model"]["chunkSize"])
    installation.workload.wait_until_stored(computed, computed.answer.prompt_tokens // chunk_tokens)
    loopback = Loopback(installation.kube, place, victim, through=names.CONTAINER_VLLM)
    restarted = restarts(installation.kube, place, victim, names.CONTAINER_LMCACHE)

    def keep_asking(url: str) -> None:
        while not is_back.is_set():
            assert ask(url, installation.served_model, "Say hello.", timeout_seconds=LONGEST_WAIT_SECONDS).text

    with installation.kube.forward(place, f"pod/{victim}", SERVING_PORT) as url, ThreadPoolExecutor(1) as pool:
        killed = datetime.now(UTC)
        kill_container(installation.kube, place, victim, names.CONTAINER_LMCACHE)
        until(lambda: not loopback.is_lmcache_healthy(), 10, every_seconds=0.2)
        asking = pool.submit(keep_asking, url)
        try:
            until(loopback.is_lmcache_healthy, ANSWERS_WITHIN_SECONDS, every_seconds=0.2)
            answered = datetime.now(UTC)
            since = _shared_memory_since(installation, victim, killed)
        finally:
            is_back.set()
        asking.result()
        assert restarts(installation.kube, place, victim, names.CONTAINER_LMCACHE) == restarted + 1
        before = read_counters(installation.kube, place, victim, url)
        ask(url, installation.served_model, prompt.text)
        after = read_counters(installation.kube, place, victim, url)
    assert after.since(before).external_hit_tokens > 0
    answer_seconds, back_seconds = (answered - killed).total_seconds(), (since - answered).total_seconds()
    record_property("sidecar_answers_after_seconds", answer_seconds)
    record_property("shared_memory_after_answer_seconds", back_seconds)
    with capsys.disabled():
        print(
            f"\nidle sidecar killed: it answers again after {answer_seconds:.1f} s, shared memory is back "
            f"{max(back_seconds, 0):.1f} s later ({(since - killed).total_seconds():.1f} s after the kill)"
        )
    assert back_seconds <= SHARED_MEMORY_WITHIN_SECONDS


def _shared_memory_since(installation: Installation, pod: str, earliest: datetime) -> datetime:
    """Wait until an LMCache started after ``earliest`` has its engine over shared memory; return since when."""
    found: list[datetime] = []

    def is_told() -> bool:
        since = installation.shared_memory_since(pod)
        if since is not None and since > earliest:
            found.append(since)
        return bool(found)

    # longer than what is asked for, so that a failure tells how long it took
    until(is_told, 2 * SHARED_MEMORY_WITHIN_SECONDS, every_seconds=0.5)
    return found[0]


@pytest.mark.engine
@pytest.mark.timeout(600)
def test_a_pod_that_is_deleted_answers_and_stores_first_what_is_in_flight(installation: Installation) -> None:
    kube, place, model = installation.kube, installation.place.name, installation.served_model
    victim, other = installation.workload.pods()[:2]
    chunk_tokens = int(installation.resource()["status"]["model"]["chunkSize"])
    engine, sidecar = (process(kube, place, victim, name) for name in (names.CONTAINER_VLLM, names.CONTAINER_LMCACHE))
    prompt = new_prompt(tokens=1500)
    installation.faults().put_off_writes()
    with kube.forward(place, f"pod/{victim}", SERVING_PORT) as url, ThreadPoolExecutor(1) as pool:
        long = pool.submit(ask, url, model, LONG_TASK, max_tokens=200)
        until(long.running, 10, every_seconds=0.1)
        kube.kubectl("delete", "pod", victim, "-n", place, "--wait=false")
        deleted = time.monotonic()
        # a connection that is open outlives the pod's place among the endpoints: what comes on it is answered too
        while time.monotonic() - deleted < ENDPOINT_REMOVAL_SECONDS:
            assert ask(url, model, "Say hello.").text
        assert not long.done(), "the task was too short to prove anything"
        # as late as possible: what cannot be stored for too long is given up
        answer = ask(url, model, prompt.text)
        assert long.result().text

    until(lambda: not is_running(engine), 60, every_seconds=0.2)
    # a server that does not wait ends within some seconds of its engine, and drops what it has not stored
    time.sleep(DROPS_WITHIN_SECONDS)
    assert is_running(sidecar), "it did not wait for its stores"
    installation.faults().clear()
    until(lambda: kube.get("pod", victim, "-n", place) is None, 90)

    with kube.forward(place, f"pod/{other}", SERVING_PORT) as url:
        before = read_counters(kube, place, other, url)
        assert ask(url, model, prompt.text).text == answer.text
        loaded = read_counters(kube, place, other, url).since(before).external_hit_tokens
    assert loaded >= 0.9 * (answer.prompt_tokens // chunk_tokens) * chunk_tokens


@pytest.mark.engine
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("container", "sign"), [(names.CONTAINER_LMCACHE, "LMCache"), (names.CONTAINER_VLLM, "Starting to load model")]
)
def test_a_pod_that_still_starts_does_not_use_up_its_grace_period(
    installation: Installation, container: str, sign: str
) -> None:
    kube, place, name = installation.kube, installation.place.name, installation.workload.name
    pods = set(installation.workload.pods())
    resource, logs = f"{names.SHORT_NAME}/{name}", ("logs", "-n", place, "-c", container)

    def starting() -> list[str]:
        new = set(installation.workload.pods()) - pods
        return [pod for pod in new if sign in kube.kubectl(*logs, pod, check=False)]

    kube.kubectl("scale", resource, "-n", place, f"--replicas={len(pods) + 1}")
    try:
        until(lambda: bool(starting()), 180, every_seconds=0.5)
        (pod,) = starting()
    finally:
        kube.kubectl("scale", resource, "-n", place, f"--replicas={len(pods)}")

    until(lambda: kube.get("pod", pod, "-n", place) is None, STARTING_POD_ENDS_WITHIN_SECONDS)
    assert set(installation.workload.pods()) == pods


@pytest.mark.engine
@pytest.mark.timeout(900)
def test_sidecar_killed_under_load_hangs_nothing_and_the_pod_comes_back(installation: Installation) -> None:
    place, (victim, other) = installation.place.name, installation.workload.pods()[:2]
    known, stop = new_prompt(tokens=1000), threading.Event()
    waits: list[float] = []

    def keep_asking(url: str) -> None:
        # in turns a prompt that is computed and stored, and one that is loaded
        while not stop.is_set():
            for prompt in (new_prompt(tokens=1000), known):
                started = time.monotonic()
                # an engine that dies with its sidecar may break a request; it must not let it wait
                with contextlib.suppress(httpx.HTTPError, DemoError):
                    ask(url, installation.served_model, prompt.text, timeout_seconds=120)
                waits.append(time.monotonic() - started)

    with (
        installation.kube.forward(place, f"pod/{victim}", SERVING_PORT) as url,
        installation.kube.forward(place, f"pod/{other}", SERVING_PORT) as other_url,
        ThreadPoolExecutor(3) as pool,
    ):
        asking = [pool.submit(keep_asking, url) for _ in range(3)]
        until(lambda: len(waits) >= len(asking), 120)
        kill_container(installation.kube, place, victim, names.CONTAINER_LMCACHE)
        assert ask(other_url, installation.served_model, "Say hello.", timeout_seconds=LONGEST_WAIT_SECONDS).text
        stop.set()
        for each in asking:
            each.result()

    assert max(waits) < LONGEST_WAIT_SECONDS
    installation.wait_until_healthy()


@pytest.mark.engine
@pytest.mark.timeout(600)
def test_couchbase_outage_keeps_serving_and_shows_in_cache_healthy(installation: Installation) -> None:
    place, (pod, _) = installation.place.name, installation.workload.pods()[:2]
    until(lambda: installation.condition("CacheHealthy").get("status") == "True", 120)

    installation.faults().kill_node(OUTAGE_SECONDS)

    until(lambda: installation.condition("CacheHealthy").get("status") == "False", OUTAGE_SECONDS)
    ready = installation.condition("Ready")
    assert ready["status"] == "True", ready
    with installation.kube.forward(place, f"pod/{pod}", SERVING_PORT) as url:
        prompt = new_prompt(tokens=1500)
        answer = ask(url, installation.served_model, prompt.text, timeout_seconds=LONGEST_WAIT_SECONDS)
    assert prompt.fact in answer.text
    until(lambda: installation.condition("CacheHealthy").get("status") == "True", OUTAGE_SECONDS + 120)
