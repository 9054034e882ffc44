"""What a reconcile test stands on: a namespace with Secrets and resources, an operator, the state after it."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import time
import urllib.error
import urllib.request
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator import names
from couchbase_lm_operator.api.crd import crd
from couchbase_lm_operator.handlers import operate
from couchbase_lm_operator.io.kube_api import APPLY_PATCH, KINDS, MERGE_PATCH
from couchbase_lm_operator.runtime import Runtime
from couchbase_lm_operator.settings import Settings
from tests.reconcile.operator_log import OperatorLog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from couchbase_lm_operator.io.cluster import Cluster
    from couchbase_lm_operator.io.kube_api import KubeApi
    from e2e.couchbase_emulator import RunningEmulator
    from tests.apiserver import ApiServer

Manifest = dict[str, Any]

MODEL_CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}


@dataclass
class World:
    """One namespace of the private API server, and one Couchbase."""

    server: ApiServer
    cluster: Cluster
    couchbase: RunningEmulator
    namespace: str
    log: OperatorLog = field(default_factory=OperatorLog)

    async def build(self) -> None:
        await self._post(
            "Namespace", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}, ""
        )
        await self.write_secret("cb-admin", username="Administrator", password="wrong-until-set")
        await self.set_admin_secret()
        await self.write_config_map("model-config", {"config.json": json.dumps(MODEL_CONFIG)})

    async def clear(self) -> None:
        """Delete the resources; without controllers their children stay, in a namespace nobody looks at."""
        for resource in (await self.cluster.objects(names.KIND, self.namespace))[0]:
            path = KINDS[names.KIND].path(self.namespace, resource["metadata"]["name"])
            await self.cluster.api.request(
                "PATCH", path, body={"metadata": {"finalizers": None}}, content_type=MERGE_PATCH
            )
            await self.cluster.delete(resource)

    async def clear_children(self) -> None:
        """Delete what a garbage collector would delete after its owner."""
        for kind in ("Deployment", "Service", "ControllerRevision", "Secret"):
            for item in (await self.cluster.objects(kind, self.namespace))[0]:
                if item["metadata"].get("ownerReferences"):
                    await self.cluster.delete(item)

    def management_request(self, path: str, method: str = "GET") -> urllib.request.Request:
        """Return a request to the management API as its administrator."""
        user = f"{self.couchbase.admin_username}:{self.couchbase.admin_password}"
        login = {"Authorization": "Basic " + base64.b64encode(user.encode()).decode()}
        return urllib.request.Request(f"{self.couchbase.management_urls[0]}{path}", headers=login, method=method)

    def replace_bucket(self, name: str) -> None:
        """Delete a bucket and make another of that name, as somebody else would."""
        with urllib.request.urlopen(self.management_request(f"/pools/default/buckets/{name}", "DELETE"), timeout=30):
            pass
        self.couchbase.create_bucket(name)

    # -- what people do

    async def set_admin_secret(self) -> None:
        await self.write_secret(
            "cb-admin", username=self.couchbase.admin_username, password=self.couchbase.admin_password
        )

    async def write_secret(self, name: str, **values: str) -> None:
        data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        await self.put({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data})

    async def write_config_map(self, name: str, data: dict[str, str]) -> None:
        await self.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})

    def body(self, name: str = "demo", **changes: Any) -> Manifest:
        """Return a resource as people write it; ``changes`` are merged into its spec, dots for depth."""
        spec: Manifest = {
            "model": {"id": "/models/demo", "config": {"configMapRef": {"name": "model-config"}}},
            "couchbase": {
                "connectionString": self.couchbase.connection_string,
                "managementEndpoints": list(self.couchbase.management_urls),
                "adminSecretRef": {"name": "cb-admin"},
            },
            "accelerator": {"vendor": "CPU"},
            "replicas": 2,
        }
        for path, value in changes.items():
            node, *rest = path.split("__")
            target = spec
            for part in rest:
                target = target.setdefault(node, {})
                node = part
            target[node] = value
        return {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": spec,
        }

    async def create(self, name: str = "demo", **changes: Any) -> Manifest:
        return await self._post(names.KIND, self.body(name, **changes), self.namespace)

    async def edit(self, name: str = "demo", kind: str = names.KIND, **patch: Any) -> Manifest:
        """Merge-patch an object."""
        path = KINDS[kind].path(self.namespace, name)
        return await self.cluster.api.request("PATCH", path, body=patch, content_type=MERGE_PATCH)

    async def delete(self, kind: str, name: str) -> None:
        await self.cluster.api.request("DELETE", KINDS[kind].path(self.namespace, name))

    # -- what controllers and the kubelet would do

    async def serve(self, name: str = "demo", **changes: Any) -> None:
        """Create a resource and bring it to Ready."""
        await self.create(name, **changes)
        await self.until_condition("CredentialsReady", "True", name=name)
        await until(lambda: self.cluster.get("Deployment", self.namespace, name))
        await self.make_available(name)
        await self.until_condition("Ready", "True", "Serving", name=name)
        await self.until_condition("CacheHealthy", "True", name=name)

    async def make_available(self, name: str = "demo") -> None:
        """Set a Deployment's status as if its pods were ready."""
        deployment = await self.get("Deployment", name)
        wanted = deployment["spec"]["replicas"]
        counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), wanted)
        await self.set_deployment_status(name, **counts)

    async def set_deployment_status(self, name: str = "demo", **fields: Any) -> None:
        deployment = await self.get("Deployment", name)
        path = KINDS["Deployment"].path(self.namespace, name, "status")
        status = {"observedGeneration": deployment["metadata"]["generation"], **fields}
        await self.cluster.api.request("PATCH", path, body={"status": status}, content_type=MERGE_PATCH)

    # -- what tests look at

    async def get(self, kind: str, name: str) -> Manifest:
        found = await self.cluster.get(kind, self.namespace, name)
        assert found is not None, f"{kind} {name} does not exist"
        return found

    async def status(self, name: str = "demo") -> Manifest:
        return dict((await self.get(names.KIND, name)).get("status") or {})

    async def condition(self, kind: str, name: str = "demo") -> Manifest:
        conditions = (await self.status(name)).get("conditions") or []
        return next((each for each in conditions if each["type"] == kind), {"status": "absent", "reason": ""})

    async def until_condition(
        self, kind: str, status: str, reason: str | None = None, *, name: str = "demo", seconds: float = 25.0
    ) -> Manifest:
        async def check() -> Manifest | None:
            found = await self.condition(kind, name)
            resource = await self.get(names.KIND, name)
            is_current = (resource.get("status") or {}).get("observedGeneration") == resource["metadata"]["generation"]
            return found if is_current and found["status"] == status and reason in {None, found["reason"]} else None

        try:
            return dict(await until(check, seconds=seconds))
        except AssertionError as error:
            conditions = (await self.status(name)).get("conditions")
            raise AssertionError(
                f"{kind} is not {status} {reason or ''}: {json.dumps(conditions, indent=1)}"
            ) from error

    async def until_deleting(self, name: str = "demo") -> Manifest:
        async def check() -> Manifest | None:
            found = await self.condition("Ready", name)
            return found if found["reason"] == "Deleting" else None

        return dict(await until(check))

    async def versions(self) -> dict[tuple[str, str], str]:
        """Return the resource version of everything in the namespace, Events too."""
        found = {}
        for kind in (names.KIND, "Deployment", "Service", "ControllerRevision", "Secret", "ConfigMap", "Event"):
            for item in (await self.cluster.objects(kind, self.namespace))[0]:
                found[kind, item["metadata"]["name"]] = item["metadata"]["resourceVersion"]
        return found

    async def couchbase_has(self, path: str) -> bool:
        """Say whether the management API has something at a path."""
        request = self.management_request(path)

        def ask() -> bool:
            try:
                with urllib.request.urlopen(request, timeout=10) as answer:
                    return bool(answer.status == 200)
            except urllib.error.HTTPError as error:
                if error.code != 404:
                    raise
                return False

        return await asyncio.to_thread(ask)

    async def has_bucket(self, name: str) -> bool:
        return await self.couchbase_has(f"/pools/default/buckets/{name}")

    async def has_user(self, name: str) -> bool:
        return await self.couchbase_has(f"/settings/rbac/users/local/{name}")

    def couchbase_mutations(self) -> Any:
        return copy.deepcopy(self.couchbase.mutations)

    # -- the operator

    def settings(self, **changes: Any) -> Settings:
        fast: dict[str, Any] = {
            "reference_poll_seconds": 0.5,
            "cache_probe_seconds": 0.5,
            "sweep_seconds": 5.0,
            "operator_image": "localhost/lmcache-couchbase/operator:test",
        }
        where = {"kubeconfig": self.server.kubeconfig, "namespaces": (self.namespace,)}
        return Settings(http_host="127.0.0.1", http_port=0, **{**where, **fast, **changes})

    @asynccontextmanager
    async def operator(self, **changes: Any) -> AsyncIterator[Runtime]:
        """Run an operator in this event loop; fail if it logs an error that ``log`` does not expect."""
        settings = self.settings(**changes)
        runtime, stop = Runtime(settings), asyncio.Event()
        with self.log.watching():
            task = asyncio.create_task(operate(runtime, settings, stop))
            try:
                ready = asyncio.create_task(runtime.ready.wait())
                await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED, timeout=30)
                if task.done():
                    task.result()
                assert runtime.ready.is_set()
                yield runtime
            finally:
                stop.set()
                _, pending = await asyncio.wait({task}, timeout=20)
                assert not pending, [str(each) for each in asyncio.all_tasks()]
                task.result()

    async def put(self, manifest: Manifest) -> None:
        manifest["metadata"]["namespace"] = self.namespace
        if await self.cluster.get(manifest["kind"], self.namespace, manifest["metadata"]["name"]) is None:
            await self._post(manifest["kind"], manifest, self.namespace)
            return
        path = KINDS[manifest["kind"]].path(self.namespace, manifest["metadata"]["name"])
        await self.cluster.api.request("PUT", path, body=manifest)

    async def _post(self, kind: str, manifest: Manifest, namespace: str) -> Manifest:
        query = {"fieldValidation": "Strict"}
        return await self.cluster.api.request("POST", KINDS[kind].path(namespace), query=query, body=manifest)


async def install_definition(api: KubeApi) -> None:
    """Install our CRD and wait until the API server serves it."""
    definition = crd()
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition['metadata']['name']}"
    query = {"fieldManager": "test", "force": "true"}
    await api.request("PATCH", path, query=query, body=definition, content_type=APPLY_PATCH)

    async def is_served() -> bool:
        found = await api.request("GET", path)
        return any(
            each["type"] == "Established" and each["status"] == "True"
            for each in (found.get("status") or {}).get("conditions") or []
        )

    await until(is_served)


async def until(check: Callable[[], Awaitable[Any]], *, seconds: float = 25.0) -> Any:
    """Return the first truthy result of ``check``."""
    deadline = time.monotonic() + seconds
    while True:
        result = await check()
        if result:
            return result
        assert time.monotonic() < deadline, f"not so after {seconds} s: last saw {result!r}"
        await asyncio.sleep(0.1)
