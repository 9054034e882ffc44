"""The operator as a process: which namespaces, which rights, its health, and a world that starts late or breaks."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator import names
from couchbase_lm_operator.io.cluster import Cluster
from couchbase_lm_operator.io.health import HealthServer, Watchdog
from couchbase_lm_operator.io.kube_api import KubeApi
from couchbase_lm_operator.metrics import REGISTRY
from tests.apiserver import OPERATOR_TOKEN, OPERATOR_USER, ApiServer
from tests.reconcile.world import World, install_definition, until

if TYPE_CHECKING:
    from pathlib import Path

    from e2e.couchbase_emulator import RunningEmulator

# all that the operator may do in a namespace that it watches; the chart grants the same
RIGHTS = [
    {"apiGroups": [names.GROUP], "resources": [names.PLURAL], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": [names.GROUP], "resources": [f"{names.PLURAL}/status"], "verbs": ["patch"]},
    {
        "apiGroups": ["apps"],
        "resources": ["deployments"],
        "verbs": ["get", "list", "watch", "create", "patch", "delete"],
    },
    {
        "apiGroups": ["apps"],
        "resources": ["controllerrevisions"],
        "verbs": ["get", "list", "watch", "create", "patch", "delete"],
    },
    {"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list", "watch", "create", "patch", "delete"]},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "create", "patch"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
]


async def grant(world: World, without: str = "") -> None:
    """Give the operator its rights in a namespace, except those on one resource."""
    rules = [rule for rule in RIGHTS if rule["resources"] != [without]]
    root = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{world.namespace}"
    meta = {"name": OPERATOR_USER, "namespace": world.namespace}
    group = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta, "rules": rules}
    await world.cluster.api.request("POST", f"{root}/roles", body=role)
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": group, "kind": "Role", "name": OPERATOR_USER},
        "subjects": [{"apiGroup": group, "kind": "User", "name": OPERATOR_USER}],
    }
    await world.cluster.api.request("POST", f"{root}/rolebindings", body=binding)


async def test_the_rights_of_one_namespace_are_enough(world: World, tmp_path: Path) -> None:
    await grant(world)
    kubeconfig = world.server.kubeconfig_for(OPERATOR_TOKEN, tmp_path / "operator")
    async with world.operator(kubeconfig=kubeconfig):
        await world.serve(couchbase__bucket={"reclaimPolicy": "Delete"})
        await world.delete("Service", "demo")
        await until(lambda: world.cluster.get("Service", world.namespace, "demo"))
        await world.edit(spec={"replicas": 0})

        async def is_scaled() -> bool:
            return bool((await world.get("Deployment", "demo"))["spec"]["replicas"] == 0)

        await until(is_scaled)
        await world.make_available()
        await world.until_condition("WorkloadAvailable", "True", "WorkloadScaledToZero")
        found = await world.until_condition("Ready", "True", "WorkloadScaledToZero")
        assert "nothing serves" in found["message"]
        events, _ = await world.cluster.objects("Event", world.namespace)
        assert {"Serving", "CredentialsReady"} <= {each["reason"] for each in events}
        await world.delete(names.KIND, "demo")

        async def is_gone() -> bool:
            return await world.cluster.get(names.KIND, world.namespace, "demo") is None

        await until(is_gone)


async def test_missing_rights_are_told_in_the_resource(world: World, tmp_path: Path) -> None:
    without = [rule for rule in RIGHTS if rule["resources"] != ["controllerrevisions"]]
    await grant(world)
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{world.namespace}/roles/{OPERATOR_USER}"
    can_list = {"apiGroups": ["apps"], "resources": ["controllerrevisions"], "verbs": ["list"]}
    await world.cluster.api.request(
        "PATCH",
        path,
        body={"rules": [*without, can_list]},
        content_type="application/merge-patch+json",
    )
    kubeconfig = world.server.kubeconfig_for(OPERATOR_TOKEN, tmp_path / "operator")
    async with world.operator(kubeconfig=kubeconfig):
        await world.create()
        found = await world.until_condition("Ready", "False", "ClusterRefused")
        assert "controllerrevisions" in found["message"]


async def test_a_namespaced_operator_leaves_other_namespaces_alone(world: World) -> None:
    other = World(world.server, world.cluster, world.couchbase, f"{world.namespace}-other")
    await other.build()
    try:
        async with world.operator():
            await other.create()
            await world.serve()
            assert (await other.status())["observedGeneration"] == -1
    finally:
        await other.clear()


async def test_one_operator_may_serve_all_namespaces(world: World) -> None:
    other = World(world.server, world.cluster, world.couchbase, f"{world.namespace}-other")
    await other.build()
    try:
        async with world.operator(namespaces=()):
            await other.create()
            await world.serve()
            await other.until_condition("CredentialsReady", "True")
    finally:
        await other.clear()


async def test_events_tell_changes_and_nothing_else(world: World) -> None:
    async with world.operator() as runtime:
        await world.serve()
        reasons = [each["reason"] for each in (await world.cluster.objects("Event", world.namespace))[0]]
        assert len(reasons) == len(set(reasons))
        world.couchbase.faults.kill_node(0)
        await world.until_condition("CacheHealthy", "False")

        async def warning() -> Any:
            events, _ = await world.cluster.objects("Event", world.namespace)
            return next((each for each in events if each["reason"] == "CacheUnreachable"), None)

        assert (await until(warning))["type"] == "Warning"
        assert runtime.http_port


async def test_metrics_and_health_are_served(world: World) -> None:
    async with world.operator() as runtime:
        await world.serve()
        status, text = await _fetch(runtime.http_port, "/metrics")
        assert status == 200
        assert 'lmcb_passes_total{outcome="done"}' in text
        assert f'lmcb_cache_healthy{{name="demo",namespace="{world.namespace}"}} 1.0' in text
        assert world.couchbase.admin_password not in text
        assert await _fetch(runtime.http_port, "/healthz") == (200, "{}")
        assert (await _fetch(runtime.http_port, "/"))[0] == 404


async def test_a_silent_part_makes_the_operator_unhealthy() -> None:
    now = 0.0
    watchdog = Watchdog(lambda: now, {"watch": 10.0, "queue": 5.0})
    watchdog.beat("watch Deployment")
    watchdog.watch_age("queue", lambda: 0.0)
    with HealthServer("127.0.0.1", 0, watchdog, REGISTRY) as server:
        assert (await _fetch(server.port, "/healthz"))[0] == 200
        now = 11.0
        status, text = await _fetch(server.port, "/healthz")
        assert status == 503
        assert json.loads(text) == {"watch Deployment": "silent for 11 s"}
        watchdog.beat("watch Deployment")
        assert (await _fetch(server.port, "/healthz"))[0] == 200


async def test_it_waits_for_its_definition_and_survives_a_lost_api_server(couchbase: RunningEmulator) -> None:
    with ApiServer() as server:
        async with KubeApi(server.kubeconfig) as api:
            world = World(server, Cluster(api), couchbase, "late")
            await world.build()

            async def define_later() -> None:
                await asyncio.sleep(1.0)
                await install_definition(api)

            later = asyncio.create_task(define_later())
            async with world.operator() as runtime:
                await later
                await world.serve()
                troubles = "Connect|APIForbidden|APIServer|APITooManyRequests"  # the latter while it starts
                world.log.expect(f"kopf.* Request attempt .* failed; will retry: GET .*({troubles})")
                await asyncio.to_thread(server.stop_serving)
                await asyncio.sleep(2.0)
                await asyncio.to_thread(server.serve_again)
                await world.edit(spec={"replicas": 4})

                async def is_scaled() -> bool:
                    return bool((await world.get("Deployment", "demo"))["spec"]["replicas"] == 4)

                await until(is_scaled, seconds=60)
                await world.delete("Service", "demo")
                await until(lambda: world.cluster.get("Service", "late", "demo"), seconds=60)
                assert (await _fetch(runtime.http_port, "/healthz"))[0] == 200


async def _fetch(port: int, path: str) -> tuple[int, str]:
    def ask() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                return int(answer.status), answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return await asyncio.to_thread(ask)
