"""A hub that is out of order: what was planned before goes on, also with an operator that was started anew."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.model_hub import COMMIT, Hub, running_hub
from tests.reconcile.world import MODEL_CONFIG, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.reconcile.world import World


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running_hub() as running:
        running.body = json.dumps({**MODEL_CONFIG, "rope_theta": 1000000.0}).encode()
        yield running


async def test_a_restart_during_an_outage_of_the_hub_disturbs_nothing(world: World, hub: Hub) -> None:
    async with world.operator():
        await world.serve(model={"id": "org/model", "config": {"hub": {"endpoint": hub.url}}})
    before = await world.versions()
    hub.status = 503
    hub.paths.clear()
    async with world.operator():

        async def is_asked() -> bool:
            return len(hub.paths) > 0

        await until(is_asked)
        await world.edit(spec={"replicas": 4})

        async def is_scaled() -> bool:
            return bool((await world.get("Deployment", "demo"))["spec"]["replicas"] == 4)

        await until(is_scaled)
        await world.make_available()
        await world.until_condition("Ready", "True", "Serving")
        assert (await world.condition("RolloutPending"))["status"] == "absent"
        after = await world.versions()
        kept = [key for key in before if key[0] in {"ControllerRevision", "Service", "Secret"}]
        assert {key: before[key] for key in kept} == {key: after[key] for key in kept}

        await world.edit(spec={"engine": {"image": "example.com/engine:fixed"}})

        async def is_fixed() -> bool:
            pod = (await world.get("Deployment", "demo"))["spec"]["template"]["spec"]
            return any(each["image"] == "example.com/engine:fixed" for each in pod["containers"])

        await until(is_fixed)
    # the record of the new template keeps the config as well
    async with world.operator():
        await world.make_available()
        await world.until_condition("Ready", "True", "Serving")
        assert (await world.status())["model"]["revision"] == COMMIT


async def test_what_is_kept_answers_no_other_question(world: World, hub: Hub) -> None:
    async with world.operator():
        await world.serve(model={"id": "org/model", "config": {"hub": {"endpoint": hub.url}}})
        hub.status = 503
        await world.edit(spec={"model": {"revision": "v2"}})
        await world.until_condition("ModelResolved", "False", "ModelConfigUnreadable")
        await world.edit(spec={"model": {"revision": None}})
        await world.until_condition("Ready", "True", "Serving")
    # a hub that answers and refuses is no outage
    hub.status, hub.error_code = 403, "GatedRepo"
    async with world.operator():
        found = await world.until_condition("ModelResolved", "False", "ModelConfigUnreadable")
        assert "spec.model.tokenSecretRef" in found["message"]
