"""The record of the pod template in effect: it comes back, and a record that was lost never rolls pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from couchbase_lm_operator import names
from tests.reconcile.world import until

if TYPE_CHECKING:
    from tests.reconcile.world import Manifest, World

NEXT = {"operator_image": "localhost/lmcache-couchbase/operator:next", "engine_image_cpu": "cpu:next"}


async def _record(world: World) -> Manifest:
    (record,), _ = await world.cluster.objects("ControllerRevision", world.namespace)
    return record


async def _template(world: World) -> Manifest:
    return dict((await world.get("Deployment", "demo"))["spec"]["template"])


@pytest.mark.parametrize(
    "metadata",
    [
        {"annotations": {names.ANNOTATION_TEMPLATE_HASH: "0123456789abcdef"}},
        {"annotations": {names.ANNOTATION_TEMPLATE_HASH: None}},
        {"labels": {names.LABEL_MANAGED_BY: None}},
        {"ownerReferences": None},
    ],
    ids=["another hash", "no hash", "no label", "no owner"],
)
async def test_an_edited_record_is_put_back(world: World, metadata: Manifest) -> None:
    async with world.operator():
        await world.serve()
        before, template = await _record(world), await _template(world)
        await world.edit(before["metadata"]["name"], kind="ControllerRevision", metadata=metadata)

        async def is_as_before() -> bool:
            now = await _record(world)
            parts = ("name", "uid", "labels", "annotations", "ownerReferences")
            return all(now["metadata"].get(part) == before["metadata"][part] for part in parts)

        await until(is_as_before, seconds=10)
        assert (await _record(world))["data"] == before["data"]
        assert await _template(world) == template


@pytest.mark.parametrize("has_marks", [True, False], ids=["marked Deployment", "Deployment of an earlier release"])
async def test_a_new_release_without_the_record_leaves_pods_alone_until_it_is_approved(
    world: World, *, has_marks: bool
) -> None:
    async with world.operator():
        await world.serve()
    template, status = await _template(world), await world.status()
    # what others wrote into the template is theirs, and is not kept as ours
    restarted = {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "2026-01-01"}}}}
    await world.edit("demo", kind="Deployment", spec=restarted)
    if not has_marks:
        marks = dict.fromkeys((names.ANNOTATION_TEMPLATE_HASH, names.ANNOTATION_TEMPLATE_REVISION))
        await world.edit("demo", kind="Deployment", metadata={"annotations": marks})
    await world.make_available()
    await world.delete("ControllerRevision", (await _record(world))["metadata"]["name"])
    async with world.operator(**NEXT):
        await world.until_condition("RolloutPending", "True")
        assert (await _template(world))["spec"] == template["spec"]
        await world.make_available()  # the marks are new to it: Kubernetes counts them as a new generation
        await world.until_condition("Ready", "True", "Serving")
        record, now = await _record(world), await world.status()
        assert "restartedAt" not in str(record["data"]["template"])
        assert record["data"]["template"]["spec"].get("schedulerName") is None
        # the numbers in status are still those of the pods that run
        for block in ("model", "capacity", "transfer"):
            assert now[block] == status[block]
        assert now["couchbase"]["keyPrefix"] == status["couchbase"]["keyPrefix"]
        if has_marks:
            assert now["workload"]["revision"] == status["workload"]["revision"] == record["data"]["revision"]
        await world.edit(spec={"rollout": {"approve": now["workload"]["pendingRevision"]}})

        async def is_rolled() -> bool:
            return all(each["image"] == "cpu:next" for each in (await _template(world))["spec"]["containers"])

        await until(is_rolled)
        await world.until_condition("RolloutPending", "absent")


async def test_the_same_release_without_the_record_finds_nothing_pending(world: World) -> None:
    async with world.operator():
        await world.serve()
    record, template = await _record(world), await _template(world)
    await world.delete("ControllerRevision", record["metadata"]["name"])
    async with world.operator():

        async def is_back() -> bool:
            records, _ = await world.cluster.objects("ControllerRevision", world.namespace)
            return [each["data"] for each in records] == [record["data"]]

        await until(is_back, seconds=10)
        await world.until_condition("Ready", "True", "Serving")
        assert await _template(world) == template
        assert (await world.condition("RolloutPending"))["status"] == "absent"


async def _take_images(world: World) -> None:
    """Write other images as somebody else, who owns these fields from then on."""
    containers = [{**each, "image": "elsewhere/other:1"} for each in (await _template(world))["spec"]["containers"]]
    await world.edit("demo", kind="Deployment", spec={"template": {"spec": {"containers": containers}}})
    await world.delete("ControllerRevision", (await _record(world))["metadata"]["name"])


async def test_images_that_somebody_else_wrote_without_the_record_are_put_back(world: World) -> None:
    async with world.operator():
        await world.serve()
    template, record = await _template(world), await _record(world)
    await _take_images(world)
    async with world.operator():

        async def is_as_before() -> bool:
            records, _ = await world.cluster.objects("ControllerRevision", world.namespace)
            is_known = [each["data"] for each in records] == [record["data"]]
            return is_known and await _template(world) == template

        await until(is_as_before, seconds=10)


async def test_a_new_release_rolls_no_pods_of_images_that_somebody_else_wrote(world: World) -> None:
    async with world.operator():
        await world.serve()
    await _take_images(world)
    template = await _template(world)
    async with world.operator(**NEXT):
        await world.until_condition("RolloutPending", "True")
        assert (await _template(world))["spec"] == template["spec"]
        # whoever deletes the Deployment gets back one that is complete
        await world.delete("Deployment", "demo")
        await until(lambda: world.cluster.get("Deployment", world.namespace, "demo"), seconds=10)
        assert (await _template(world))["spec"] == template["spec"]
        pending = (await world.status())["workload"]["pendingRevision"]
        await world.edit(spec={"rollout": {"approve": pending}})

        async def is_rolled() -> bool:
            return all(each["image"] == "cpu:next" for each in (await _template(world))["spec"]["containers"])

        await until(is_rolled)


async def test_a_field_that_changes_while_the_record_is_lost_rolls_the_pods(world: World) -> None:
    async with world.operator():
        await world.serve()
    await world.delete("ControllerRevision", (await _record(world))["metadata"]["name"])
    await world.edit(spec={"engine": {"image": "example.com/engine:fixed"}})
    async with world.operator(**NEXT):

        async def is_rolled() -> bool:
            containers = (await _template(world))["spec"]["containers"]
            return all(each["image"] == "example.com/engine:fixed" for each in containers)

        await until(is_rolled)


@pytest.mark.parametrize("revision", ["x y", "a/b"])
async def test_a_revision_written_by_hand_is_put_back(world: World, revision: str) -> None:
    async with world.operator():
        await world.serve()
        before = (await world.get("Deployment", "demo"))["metadata"]["annotations"]
        marks = {"annotations": {names.ANNOTATION_TEMPLATE_REVISION: revision}}
        await world.edit("demo", kind="Deployment", metadata=marks)

        async def is_as_before() -> bool:
            now = (await world.get("Deployment", "demo"))["metadata"]["annotations"]
            return bool(now[names.ANNOTATION_TEMPLATE_REVISION] == before[names.ANNOTATION_TEMPLATE_REVISION])

        await until(is_as_before, seconds=10)
