"""The CRD on a real API server: what it takes, refuses, fills in and shows."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from couchbase_lm_operator.api import crd
from e2e.testing.generated import stale_files
from tests.core.planning import spec_dict

if TYPE_CHECKING:
    from tests.api.conftest import Kubectl

_numbers = itertools.count()
KIND = "lmcachecouchbases.lmcache-couchbase.io"
EXTERNAL = {"credentialsSecretRef": {"name": "u"}, "bucket": {"name": "b"}, "scope": "s", "collection": "c"}


def resource(name: str | None = None, **changes: Any) -> dict[str, Any]:
    return {
        "apiVersion": "lmcache-couchbase.io/v1alpha1",
        "kind": "LMCacheCouchbase",
        "metadata": {"name": name or f"r{next(_numbers)}"},
        "spec": spec_dict(**changes),
    }


def without_admin(couchbase: dict[str, Any]) -> dict[str, Any]:
    made = resource()
    made["spec"]["couchbase"] = {"connectionString": "couchbase://cb", **couchbase}
    return made


def test_the_smallest_resource_is_taken_and_filled_in(kubectl: Kubectl) -> None:
    made = resource()
    kubectl.ok("create", "--validate=strict", "-f", "-", manifest=made)
    live = kubectl.get("lmcb", made["metadata"]["name"])
    assert live["status"] == {"observedGeneration": -1}
    assert live["spec"]["replicas"] == 1
    assert live["spec"]["couchbase"]["bucket"] == {
        "management": "Owned",
        "type": "Ephemeral",
        "acceptNoAutoFailover": False,
        "reclaimPolicy": "Retain",
    }
    assert "cache" not in live["spec"]


def test_the_examples_are_taken(kubectl: Kubectl) -> None:
    kubectl.ok("apply", "--validate=strict", "--dry-run=server", "-f", "examples")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model": {"id": "/models/m"}}, "config.configMapRef"),
        ({"model": {"id": "/models/m", "revision": "r", "config": {"configMapRef": {"name": "c"}}}}, "no revision"),
        ({"model": {"config": {"hub": {}, "configMapRef": {"name": "c"}}}}, "at most one of hub and configMapRef"),
        ({"model": {"weights": {"emptyDir": {}, "pvc": {"claimName": "c"}}}}, "at most one of emptyDir and pvc"),
        ({"model": {"id": "a b"}}, "spec.model.id"),
        ({"model": {"id": "x" * 600}}, "spec.model.id"),
        ({"couchbase": {"connectionString": "http://cb"}}, "spec.couchbase.connectionString"),
        ({"couchbase": {"connectionString": "couchbase://u:p@cb"}}, "spec.couchbase.connectionString"),
        ({"couchbase": {"credentialsSecretRef": {"name": "u"}}}, "credentialsSecretRef is for provisioning External"),
        ({"couchbase": {"managementEndpoints": ["ftp://x"]}}, "managementEndpoints"),
        ({"couchbase": {"provisioning": "External"}}, "credentialsSecretRef, bucket.name, scope"),
        ({"couchbase": {"bucket": {"management": "Shared"}}}, "bucket.name is required"),
        ({"couchbase": {"bucket": {"management": "Shared", "name": "b", "reclaimPolicy": "Delete"}}}, "reclaimPolicy"),
        ({"couchbase": {"bucket": {"evictionPolicy": "valueOnly"}}}, "evictionPolicy"),
        ({"couchbase": {"bucket": {"name": ".x"}}}, "spec.couchbase.bucket.name"),
        ({"couchbase": {"bucket": {"name": "a/b"}}}, "spec.couchbase.bucket.name"),
        ({"couchbase": {"bucket": {"replicas": 4}}}, "spec.couchbase.bucket.replicas"),
        ({"couchbase": {"bucket": {"memoryQuota": "much"}}}, "spec.couchbase.bucket.memoryQuota"),
        (
            {
                "couchbase": {
                    "tls": {"caSecretRef": {"name": "a", "key": "k"}, "caConfigMapRef": {"name": "b", "key": "k"}}
                }
            },
            "at most one of caSecretRef and caConfigMapRef",
        ),
        ({"couchbase": {"adminSecretRef": {"name": "../../kube-system/secrets/s"}}}, "adminSecretRef.name"),
        ({"couchbase": {"adminSecretRef": {"name": ".."}}}, "adminSecretRef.name"),
        ({"model": {"config": {"configMapRef": {"name": "a/b"}}}}, "configMapRef.name"),
        ({"cache": {"l1Size": "1025Ti"}}, "a size is at most 1Pi"),
        ({"podTemplate": {"runAsUser": 2147483648}}, "spec.podTemplate.runAsUser"),
        ({"cache": {"ttl": "forever"}}, "spec.cache.ttl"),
        ({"cache": {"ttl": "99999999999999999999d"}}, "spec.cache.ttl"),
        ({"cache": {"transfer": "VendorDriven"}}, "spec.cache.transfer"),
        ({"accelerator": {"vendor": "CPU", "deviceBackend": "Host CPU"}}, "spec.accelerator.deviceBackend"),
        ({"engine": {"tensorParallelSize": 0}}, "spec.engine.tensorParallelSize"),
        ({"engine": {"env": [{"name": "A"}, {"name": "A"}]}}, "Duplicate value"),
        ({"engine": {"env": [{"value": "nameless"}]}}, "spec.engine.env[0].name"),
        ({"engine": {"extraArgs": ["x"] * 65}}, "spec.engine.extraArgs"),
        ({"podTemplate": {"volumes": [{"name": "v"}, {"name": "v"}]}}, "Duplicate value"),
        ({"accelerator": {"vendor": "AMD"}}, "spec.accelerator.vendor"),
        ({"replicas": -1}, "spec.replicas"),
        ({"unknown": 1}, 'unknown field "spec.unknown"'),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_is_refused_by_the_api_server(kubectl: Kubectl, changes: dict[str, Any], named: str) -> None:
    said = kubectl.refused("create", "--validate=strict", "--dry-run=server", "-f", "-", manifest=resource(**changes))
    assert named in said


@pytest.mark.parametrize("name", ["a.b", "1a", "a" * 64])
def test_a_name_that_no_service_can_have_is_refused(kubectl: Kubectl, name: str) -> None:
    assert "metadata.name" in kubectl.refused("create", "--dry-run=server", "-f", "-", manifest=resource(name))


@pytest.mark.parametrize("missing", ["credentialsSecretRef", "bucket", "scope", "collection"])
def test_external_needs_what_we_do_not_create(kubectl: Kubectl, missing: str) -> None:
    kubectl.ok("create", "--dry-run=server", "-f", "-", manifest=without_admin(EXTERNAL))
    parts = {key: value for key, value in EXTERNAL.items() if key != missing}
    said = kubectl.refused("create", "--dry-run=server", "-f", "-", manifest=without_admin(parts))
    assert "credentialsSecretRef, bucket.name, scope and collection are required" in said


def test_rest_api_needs_an_admin(kubectl: Kubectl) -> None:
    made = without_admin({"provisioning": "RestAPI"})
    assert "adminSecretRef is required" in kubectl.refused("create", "--dry-run=server", "-f", "-", manifest=made)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"name": "b"}),
        ({"name": "b"}, {}),
        ({"name": "b"}, None),
        ({"name": "b"}, {"name": "c"}),
        ({}, {"type": "Couchbase"}),
        ({"type": "Couchbase"}, None),
    ],
)
def test_name_and_type_of_the_bucket_cannot_be_changed_even_by_remove_and_add(
    kubectl: Kubectl, before: dict[str, str], after: dict[str, str] | None
) -> None:
    made = resource(couchbase={"bucket": before})
    kubectl.ok("create", "-f", "-", manifest=made)
    made["spec"]["couchbase"].pop("bucket")
    if after is not None:
        made["spec"]["couchbase"]["bucket"] = after
    assert "cannot be changed" in kubectl.refused("replace", "-f", "-", manifest=made)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, {"name": "u"}),
        ({}, {"name": "u"}),
        ({"name": "u"}, {}),
        ({"name": "u"}, None),
        ({"name": "u"}, {"name": "v"}),
    ],
)
def test_the_name_of_the_user_cannot_be_changed_even_by_remove_and_add(
    kubectl: Kubectl, before: dict[str, str] | None, after: dict[str, str] | None
) -> None:
    made = resource(couchbase={} if before is None else {"user": before})
    kubectl.ok("create", "-f", "-", manifest=made)
    made["spec"]["couchbase"].pop("user", None)
    if after is not None:
        made["spec"]["couchbase"]["user"] = after
    assert "user.name cannot be changed" in kubectl.refused("replace", "-f", "-", manifest=made)


@pytest.mark.parametrize(("before", "after"), [({}, None), (None, {}), ({"name": "u"}, {"name": "u"})])
def test_an_unchanged_user_name_keeps_the_rest_changeable(
    kubectl: Kubectl, before: dict[str, str] | None, after: dict[str, str] | None
) -> None:
    made = resource(couchbase={} if before is None else {"user": before})
    kubectl.ok("create", "-f", "-", manifest=made)
    made["spec"]["couchbase"].pop("user", None)
    if after is not None:
        made["spec"]["couchbase"]["user"] = after
    made["spec"]["replicas"] = 3
    kubectl.ok("replace", "-f", "-", manifest=made)


def test_other_fields_of_the_bucket_can_be_changed(kubectl: Kubectl) -> None:
    made = resource()
    kubectl.ok("create", "-f", "-", manifest=made)
    made["spec"]["couchbase"]["bucket"] = {"memoryQuota": "1Gi", "reclaimPolicy": "Delete"}
    kubectl.ok("replace", "-f", "-", manifest=made)


def test_a_lenient_client_gets_unknown_fields_pruned_and_pod_parts_kept(kubectl: Kubectl) -> None:
    affinity = {"nodeAffinity": {"some": ["thing"]}}
    made = resource(unknown=1, podTemplate={"affinity": affinity})
    kubectl.ok("create", "--validate=ignore", "-f", "-", manifest=made)
    live = kubectl.get("lmcb", made["metadata"]["name"])
    assert "unknown" not in live["spec"]
    assert live["spec"]["podTemplate"]["affinity"] == affinity


def test_it_scales_and_shows_its_columns(kubectl: Kubectl) -> None:
    made = resource()
    name = made["metadata"]["name"]
    kubectl.ok("create", "-f", "-", manifest=made)
    kubectl.ok("scale", f"lmcb/{name}", "--replicas=4")
    assert kubectl.get("lmcb", name)["spec"]["replicas"] == 4
    header = kubectl.ok("get", "lmcb", name).splitlines()[0].split()
    assert header == ["NAME", "READY", "REASON", "MODEL", "REPLICAS", "CHUNK", "BUCKET", "AGE"]
    wide = kubectl.ok("get", "lmcb", name, "-o", "wide").splitlines()[0].split()
    assert {"TRANSFER", "CACHE", "URL"} <= set(wide)
    for category in ("couchbase", "lmcache"):
        assert name in kubectl.ok("get", category)


def test_explain_describes_every_field(kubectl: Kubectl) -> None:
    text = kubectl.ok("explain", "lmcb.spec", "--recursive")
    assert "connectionString" in text
    undescribed = list(_undescribed(crd.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"], ""))
    assert undescribed == []
    assert "``" not in str(crd.crd())


def test_strings_and_lists_are_bounded_for_the_cost_of_rules() -> None:
    spec = crd.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert list(_unbounded(spec, "spec")) == []


def test_the_generated_copies_are_what_the_models_say() -> None:
    assert stale_files() == []


def test_the_charts_schema_is_closed_and_knows_no_kubernetes_extensions() -> None:
    schema = crd.spec_schema()
    assert schema["additionalProperties"] is False
    assert "x-kubernetes" not in str(schema)
    assert schema["properties"]["engine"]["properties"]["resources"] == {
        "type": "object",
        "description": schema["properties"]["engine"]["properties"]["resources"]["description"],
    }


def _undescribed(schema: dict[str, Any], path: str) -> Any:
    for name, part in schema.get("properties", {}).items():
        if not part.get("description") and not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{path}.{name}"
        yield from _undescribed(part, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        yield from _undescribed(schema["items"], f"{path}[]")


def _unbounded(schema: dict[str, Any], path: str) -> Any:
    kind = schema.get("type")
    if kind == "string" and "maxLength" not in schema and "enum" not in schema:
        yield path
    if kind == "array" and "maxItems" not in schema:
        yield path
    if isinstance(schema.get("additionalProperties"), dict):
        if "maxProperties" not in schema:
            yield path
        yield from _unbounded(schema["additionalProperties"], f"{path}{{}}")
    for name, part in schema.get("properties", {}).items():
        yield from _unbounded(part, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        yield from _unbounded(schema["items"], f"{path}[]")
