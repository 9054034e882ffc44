"""LMCache forgets an engine that has not been asked yet when it may, and that engine dies at its first request.

An engine pings its LMCache from its first transfer on, every few seconds, and is not forgotten then: the rendered
startup probe makes that transfer. With the probe in place the flag that forbids to forget therefore has nothing to do,
except in the time before the probe's prompt. So the flag is tried without the probe: two pods, neither of which was
asked before it was idle, differ in that flag alone.
"""

from __future__ import annotations

import contextlib
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

POD = "never-asked"
GRACE_SECONDS = 30  # the shortest that LMCache takes
# LMCache looks every quarter of the grace, so that an engine is forgotten after 38 s at the latest
IDLE_SECONDS = 45
FLAG = "--worker-reap-timeout-seconds"


@contextlib.contextmanager
def _unasked_pod(installation: Installation, *, reap_arguments: list[str] | None) -> Iterator[str]:
    """Run the rendered pod once more without its warm-up prompt; ``reap_arguments`` replace the flag's value of 0."""
    place = installation.place.name
    deployment = installation.kube.get("deployment", installation.workload.name, "-n", place) or {}
    template: dict[str, Any] = deployment["spec"]["template"]
    sidecar = next(item for item in template["spec"]["initContainers"] if item["name"] == names.CONTAINER_LMCACHE)
    at = sidecar["args"].index(FLAG)
    assert sidecar["args"][at + 1] == "0"
    if reap_arguments is not None:
        sidecar["args"][at + 1 : at + 2] = reap_arguments
    engine = template["spec"]["containers"][0]
    del engine["startupProbe"]["exec"]
    engine["startupProbe"]["httpGet"] = engine["readinessProbe"]["httpGet"]
    metadata = {"name": POD, "namespace": place, "labels": {"app.kubernetes.io/name": POD}}
    installation.kube.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    try:
        ready = ["wait", "--for=condition=Ready", f"pod/{POD}", "-n", place, "--timeout=400s"]
        installation.kube.kubectl(*ready, timeout_seconds=420)
        yield POD
    finally:
        installation.kube.kubectl("delete", "pod", POD, "-n", place, "--grace-period=1", "--wait=true")


@pytest.mark.engine
@pytest.mark.timeout(900)
def test_an_engine_that_may_be_forgotten_dies_at_its_first_request(installation: Installation) -> None:
    short = [str(GRACE_SECONDS), "--worker-registration-grace-seconds", str(GRACE_SECONDS)]
    with _unasked_pod(installation, reap_arguments=short) as pod:
        time.sleep(IDLE_SECONDS)
        with contextlib.suppress(httpx.HTTPError, DemoError):
            _ask(installation, pod)
        until(lambda: _engine_restarts(installation, pod) == 1, 90)


@pytest.mark.engine
@pytest.mark.timeout(900)
def test_the_rendered_flag_alone_keeps_an_engine_that_was_never_asked(installation: Installation) -> None:
    with _unasked_pod(installation, reap_arguments=None) as pod:
        time.sleep(IDLE_SECONDS)
        _ask(installation, pod)
        assert _engine_restarts(installation, pod) == 0


def _ask(installation: Installation, pod: str) -> None:
    with installation.kube.forward(installation.place.name, f"pod/{pod}", SERVING_PORT) as url:
        ask(url, installation.served_model, new_prompt(tokens=700).text, timeout_seconds=60)


def _engine_restarts(installation: Installation, pod: str) -> int:
    return restarts(installation.kube, installation.place.name, pod, names.CONTAINER_VLLM)
