"""LMCache forgets an engine that has not been asked yet when it may, and that engine dies at its first request.

An engine pings its LMCache from its first transfer on, every few seconds, and is not forgotten then: the rendered
startup probe makes that transfer. With the probe in place the flag that forbids to forget therefore has nothing to do,
except in the time before the probe's prompt. So the flag is tried without the probe: two pods, neither of which was
asked before it was idle, differ in that flag alone.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from couchbase_lm_operator import names
from e2e.demo.chat import ask
from e2e.demo.journey import SERVING_PORT
from e2e.demo.kube import DemoError
from e2e.demo.prompt import new_prompt
from tests.journey.conftest import Installation
from tests.journey.node_process import restarts
from tests.journey.waiting import until

FORGOTTEN, KEPT = "may-be-forgotten", "is-kept"
GRACE_SECONDS = 30  # the shortest that LMCache takes
# LMCache looks every quarter of the grace, so that an engine is forgotten after 38 s at the latest
IDLE_SECONDS = 45
FLAG = "--worker-reap-timeout-seconds"


@contextlib.contextmanager
def _unasked_pods(installation: Installation, reap_arguments_of: dict[str, list[str]]) -> Iterator[None]:
    """Run the rendered pod under each name without its warm-up prompt; the arguments replace the flag's value of 0."""
    place = installation.place.name
    deployment = installation.kube.get("deployment", installation.workload.name, "-n", place) or {}
    pods = [f"pod/{name}" for name in reap_arguments_of]
    for name, reap_arguments in reap_arguments_of.items():
        spec: dict[str, Any] = copy.deepcopy(deployment["spec"]["template"]["spec"])
        sidecar = next(item for item in spec["initContainers"] if item["name"] == names.CONTAINER_LMCACHE)
        at = sidecar["args"].index(FLAG)
        assert sidecar["args"][at + 1] == "0"
        sidecar["args"][at + 1 : at + 2] = reap_arguments
        engine = spec["containers"][0]
        del engine["startupProbe"]["exec"]
        engine["startupProbe"]["httpGet"] = engine["readinessProbe"]["httpGet"]
        metadata = {"name": name, "namespace": place, "labels": {"app.kubernetes.io/name": name}}
        installation.kube.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    try:
        ready = ["wait", "--for=condition=Ready", *pods, "-n", place, "--timeout=400s"]
        installation.kube.kubectl(*ready, timeout_seconds=420)
        yield
    finally:
        installation.kube.kubectl("delete", *pods, "-n", place, "--grace-period=1", "--wait=true")


@pytest.mark.engine
@pytest.mark.timeout(900)
def test_an_engine_that_may_be_forgotten_dies_at_its_first_request_and_the_rendered_flag_keeps_it(
    installation: Installation,
) -> None:
    short = [str(GRACE_SECONDS), "--worker-registration-grace-seconds", str(GRACE_SECONDS)]
    with _unasked_pods(installation, {FORGOTTEN: short, KEPT: ["0"]}):
        time.sleep(IDLE_SECONDS)
        _ask(installation, KEPT)
        assert _engine_restarts(installation, KEPT) == 0
        with contextlib.suppress(httpx.HTTPError, DemoError):
            _ask(installation, FORGOTTEN)
        until(lambda: _engine_restarts(installation, FORGOTTEN) == 1, 90)


def _ask(installation: Installation, pod: str) -> None:
    with installation.kube.forward(installation.place.name, f"pod/{pod}", SERVING_PORT) as url:
        ask(url, installation.served_model, new_prompt(tokens=700).text, timeout_seconds=60)


def _engine_restarts(installation: Installation, pod: str) -> int:
    return restarts(installation.kube, installation.place.name, pod, names.CONTAINER_VLLM)
