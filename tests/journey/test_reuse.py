"""The main job: what one pod computed, every other answers from Couchbase."""

from __future__ import annotations

import time

import pytest

from e2e.demo.__main__ import prove
from e2e.demo.record import FOLDER
from tests.journey.conftest import Installation


@pytest.mark.engine
@pytest.mark.timeout(900)
def test_second_pod_and_new_pods_answer_from_couchbase(installation: Installation) -> None:
    turns = prove(installation.workload, installation.resource(), installation.bucket(), FOLDER.parent / "journey")

    assert [turn.cached_tokens > 0 for turn in turns] == [False, True, True, True]


@pytest.mark.engine
@pytest.mark.timeout(300)
def test_steady_resource_is_not_written(installation: Installation) -> None:
    def versions() -> dict[str, str]:
        kinds = "lmcb,deployments,services,secrets,controllerrevisions"
        listed = installation.kube.get(kinds, "-n", installation.place.name) or {}
        return {item["metadata"]["uid"]: item["metadata"]["resourceVersion"] for item in listed["items"]}

    installation.workload.wait_until_sized()
    before, writes_before = versions(), installation.faults().write_count()
    time.sleep(75)  # longer than probes, references and sweeps; the resync's silence is proven without pods

    assert versions() == before
    assert installation.faults().write_count() == writes_before
