"""Things die: requests go on, nothing hangs, and everything comes back by itself."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from couchbase_lm_operator import names
from e2e.demo.chat import ask
from e2e.demo.journey import SERVING_PORT
from e2e.demo.kube import DemoError
from e2e.demo.metrics import read_counters
from e2e.demo.prompt import new_prompt
from tests.journey.conftest import Installation
from tests.journey.node_process import container_status, kill_container, restarts
from tests.journey.waiting import until

LONGEST_WAIT_SECONDS = 45
# 30 s on a machine of its own; two engines and the tests share two cores here
BACK_WITHIN_SECONDS = 90
OUTAGE_SECONDS = 75


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
def test_killed_idle_sidecar_fails_no_request_and_serves_from_couchbase_again(installation: Installation) -> None:
    place, (victim, other) = installation.place.name, installation.workload.pods()[:2]
    prompt = new_prompt(tokens=1500)
    with installation.kube.forward(place, f"pod/{other}", SERVING_PORT) as url:
        ask(url, installation.served_model, prompt.text)

    restarted = restarts(installation.kube, place, victim, names.CONTAINER_LMCACHE)
    kill_container(installation.kube, place, victim, names.CONTAINER_LMCACHE)
    killed = time.monotonic()

    def is_back() -> bool:
        sidecar = container_status(installation.kube, place, victim, names.CONTAINER_LMCACHE)
        is_new = sidecar["restartCount"] == restarted + 1 and bool(sidecar["ready"])
        return is_new and installation.transfers_over_shared_memory(victim)

    with installation.kube.forward(place, f"pod/{victim}", SERVING_PORT) as url:
        while not is_back():
            assert ask(url, installation.served_model, "Say hello.", timeout_seconds=LONGEST_WAIT_SECONDS).text
            assert time.monotonic() < killed + BACK_WITHIN_SECONDS
        before = read_counters(installation.kube, place, victim, url)
        ask(url, installation.served_model, prompt.text)
        after = read_counters(installation.kube, place, victim, url)
    assert after.since(before).external_hit_tokens > 0


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
