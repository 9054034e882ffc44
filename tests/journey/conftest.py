"""One installation of the product on the local node, shared by the journeys; each begins with two healthy pods."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx
import pytest

from couchbase_lm_operator import names
from e2e.cluster import paths
from e2e.demo import stack
from e2e.demo.bucket import Bucket
from e2e.demo.chat import ask
from e2e.demo.journey import SERVING_PORT, Workload
from e2e.demo.kube import DemoError, Kube
from e2e.demo.manifests import Place
from e2e.demo.record import Made
from e2e.images import registry
from tests.journey.emulator_faults import EmulatorFaults
from tests.journey.evidence import evidence
from tests.journey.waiting import until

_READY_SECONDS = 600
PLACE = Place("lmcb-journey")


@dataclass(frozen=True)
class Installation:
    """A resource that was Ready once, and all that stands behind it."""

    kube: Kube
    place: Place
    workload: Workload
    admin_password: str
    served_model: str

    def resource(self) -> dict[str, Any]:
        """Return the live resource."""
        return dict(self.workload.resource())

    def bucket(self) -> Bucket:
        """Return the collection that the resource's status names."""
        return Bucket(self.kube, self.place, self.admin_password, self.resource()["status"]["couchbase"])

    def condition(self, kind: str) -> dict[str, Any]:
        """Return one condition of the resource, or an empty dict."""
        conditions = self.resource()["status"].get("conditions", [])
        return next((dict(item) for item in conditions if item["type"] == kind), {})

    def answers(self, pod: str) -> bool:
        """Say whether a pod answers a short prompt now."""
        try:
            with self.kube.forward(self.place.name, f"pod/{pod}", SERVING_PORT) as url:
                return bool(ask(url, self.served_model, "Say hello.", timeout_seconds=45).text)
        except (httpx.HTTPError, DemoError):
            return False

    def wait_until_healthy(self) -> None:
        """Wait until both pods answer, then for what their conditions say: those lag behind a crash."""
        until(lambda: all(self.answers(pod) for pod in self.workload.pods()), _READY_SECONDS, every_seconds=5)
        self.kube.wait_until_ready(f"{names.SHORT_NAME}/{self.workload.name}", self.place.name, _READY_SECONDS)
        wait = ["wait", "--for=condition=Ready", "-n", self.place.name, f"--timeout={_READY_SECONDS}s"]
        pods = [f"pod/{pod}" for pod in self.workload.pods()]
        self.kube.kubectl(*wait, *pods, timeout_seconds=_READY_SECONDS + 15)

    def shared_memory_since(self, pod: str) -> datetime | None:
        """Return when the LMCache that runs now registered its engine over shared memory: it tells so in its log.

        None: it has not, or it took to copies that are pickled.
        """
        log = self.kube.kubectl("logs", "--timestamps", pod, "-n", self.place.name, "-c", names.CONTAINER_LMCACHE)
        told = [line for line in log.splitlines() if "Using shm non-GPU transfer strategy" in line]
        return datetime.fromisoformat(told[-1].partition(" ")[0]) if told and "pickle" not in log else None

    def faults(self) -> EmulatorFaults:
        """Return the switchboard of the emulator's faults."""
        return EmulatorFaults(self.kube, self.place, self.admin_password)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Function) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    installation = item.funcargs.get("installation")
    if report.when == "call" and report.failed and isinstance(installation, Installation):
        report.sections.append(("pods", evidence(installation.workload)))
    return report


@pytest.fixture(scope="session")
def session_installation() -> Iterator[Installation]:
    kube = Kube(paths.kubeconfig())
    made = Made(namespaces=list(PLACE.all))
    stack.take_down(kube, PLACE, made)
    assert not stack.leftovers(kube, PLACE)
    images = registry.load_locally()
    stack.make_namespaces(kube, PLACE, made)
    password = stack.admin_password(kube, PLACE)
    stack.run_couchbase(kube, PLACE, images["emulator"], password)
    stack.install_operator(kube, PLACE, images["operator"], made)
    resource = stack.apply_example(kube, PLACE, images["engine-cpu"].reference)
    name = resource["metadata"]["name"]
    live = stack.wait_until_ready(kube, PLACE, name)
    yield Installation(kube, PLACE, Workload(kube, PLACE.name, name), password, stack.served_model(live))
    stack.take_down(kube, PLACE, made)
    assert not stack.leftovers(kube, PLACE)


@pytest.fixture
def installation(session_installation: Installation) -> Iterator[Installation]:
    session_installation.faults().clear()
    session_installation.wait_until_healthy()
    yield session_installation
    session_installation.faults().clear()
