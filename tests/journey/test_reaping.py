"""LMCache forgets an engine that has not been asked yet when it may, and that engine dies at its first request.

An engine shows signs of life only from its first transfer on: the rendered startup probe makes it one.
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

POD = "short-grace"
GRACE_SECONDS = 30  # the shortest that LMCache takes
IDLE_SECONDS = 75


@pytest.fixture
def pod_with_short_grace(installation: Installation) -> Iterator[str]:
    """Run the rendered pod once more, unasked before it is ready, with an LMCache that soon forgets it."""
    place = installation.place.name
    deployment = installation.kube.get("deployment", installation.workload.name, "-n", place) or {}
    template: dict[str, Any] = deployment["spec"]["template"]
    sidecar = next(item for item in template["spec"]["initContainers"] if item["name"] == names.CONTAINER_LMCACHE)
    at = sidecar["args"].index("--worker-reap-timeout-seconds")
    assert sidecar["args"][at + 1] == "0"
    grace = [str(GRACE_SECONDS), "--worker-registration-grace-seconds", str(GRACE_SECONDS)]
    sidecar["args"][at + 1 : at + 2] = grace
    engine = template["spec"]["containers"][0]
    del engine["startupProbe"]["exec"]
    engine["startupProbe"]["httpGet"] = engine["readinessProbe"]["httpGet"]
    metadata = {"name": POD, "namespace": place, "labels": {"app.kubernetes.io/name": POD}}
    installation.kube.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    ready = ["wait", "--for=condition=Ready", f"pod/{POD}", "-n", place, "--timeout=400s"]
    installation.kube.kubectl(*ready, timeout_seconds=420)
    yield POD
    installation.kube.kubectl("delete", "pod", POD, "-n", place, "--grace-period=1", "--wait=true")


@pytest.mark.engine
@pytest.mark.timeout(900)
def test_short_grace_kills_an_idle_engine_and_the_rendered_flags_do_not(
    installation: Installation, pod_with_short_grace: str
) -> None:
    survivor = installation.workload.pods()[0]
    before = _engine_restarts(installation, survivor)

    time.sleep(IDLE_SECONDS)

    with contextlib.suppress(httpx.HTTPError, DemoError):
        _ask(installation, pod_with_short_grace)
    until(lambda: _engine_restarts(installation, pod_with_short_grace) == 1, 90)
    _ask(installation, survivor)
    assert _engine_restarts(installation, survivor) == before


def _ask(installation: Installation, pod: str) -> None:
    with installation.kube.forward(installation.place.name, f"pod/{pod}", SERVING_PORT) as url:
        ask(url, installation.served_model, new_prompt(tokens=700).text, timeout_seconds=60)


def _engine_restarts(installation: Installation, pod: str) -> int:
    return restarts(installation.kube, installation.place.name, pod, names.CONTAINER_VLLM)
