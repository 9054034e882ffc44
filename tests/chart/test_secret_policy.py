"""Only who may read a Secret may name it in a resource: the admission policy on a real API server."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest

from e2e.demo.kube import DemoError, Kube
from tests.apiserver import eventually
from tests.chart.charts import NO_JOBS, Manifest, Release, resource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

AUTHOR = "author@example.com"
READER_OF_ALL = "reader@example.com"
MINE = ["mine-1", "mine-2", "mine-3"]


def _env(*names: str) -> list[dict[str, Any]]:
    return [
        {"name": f"V{number}", "valueFrom": {"secretKeyRef": {"name": name, "key": "k"}}}
        for number, name in enumerate(names)
    ]


def _couchbase(**parts: Any) -> dict[str, Any]:
    return {"connectionString": "couchbase://cb.example.com", "adminSecretRef": {"name": "mine-1"}, **parts}


def _external(name: str) -> dict[str, Any]:
    keyspace = {"bucket": {"name": "b", "management": "Shared"}, "scope": "s", "collection": "c"}
    return {
        "connectionString": "couchbase://cb.example.com",
        "provisioning": "External",
        "credentialsSecretRef": {"name": name},
        **keyspace,
    }


# Every place where a resource names a Secret, as a function of the Secret's name.
FIELDS: dict[str, Callable[[str], dict[str, Any]]] = {
    "spec.couchbase.adminSecretRef": lambda name: {"couchbase": _couchbase(adminSecretRef={"name": name})},
    "spec.couchbase.credentialsSecretRef": lambda name: {"couchbase": _external(name)},
    "spec.couchbase.tls.caSecretRef": lambda name: {
        "couchbase": _couchbase(tls={"caSecretRef": {"name": name, "key": "ca.crt"}})
    },
    "spec.model.tokenSecretRef": lambda name: {
        "model": {"id": "Qwen/Qwen3-8B", "tokenSecretRef": {"name": name, "key": "token"}}
    },
    "spec.engine.env": lambda name: {"engine": {"env": _env(name)}},
    "spec.engine.envFrom": lambda name: {"engine": {"envFrom": [{"secretRef": {"name": name}}]}},
    "spec.cache.env": lambda name: {"cache": {"env": _env(name)}},
    "spec.podTemplate.volumes": lambda name: {
        "podTemplate": {"volumes": [{"name": "v", "secret": {"secretName": name}}]}
    },
    "spec.podTemplate.imagePullSecrets": lambda name: {"podTemplate": {"imagePullSecrets": [{"name": name}]}},
}


def _naming(field: str, name: str, namespace: str) -> Manifest:
    return resource("r", namespace, **{"couchbase": _couchbase(), **FIELDS[field](name)})


@pytest.fixture(scope="module")
def place(private: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A namespace under the policy, in which the author may read three Secrets and the reader all."""
    name = "secret-policy"
    private.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    release = Release(private, name, tmp_path_factory.mktemp("policy"))
    release.install({"watchNamespaces": [name], **NO_JOBS})
    writing = {"apiGroups": ["lmcache-couchbase.io"], "resources": ["lmcachecouchbases"], "verbs": ["*"]}
    reading = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    for user, rules in (
        (AUTHOR, [writing, {**reading, "resourceNames": MINE}]),
        (READER_OF_ALL, [writing, reading]),
    ):
        for manifest in _role(user, name, rules):
            private.apply(manifest)
    # The API server takes up a new policy within seconds, not at once.
    eventually(lambda: _is_denied(private, resource("probe", name, **FIELDS["spec.engine.env"]("theirs"))))
    yield name
    release.uninstall()
    private.kubectl("delete", "namespace", name, "--wait=false")


def _role(user: str, namespace: str, rules: list[dict[str, Any]]) -> list[Manifest]:
    metadata = {"name": user.partition("@")[0], "namespace": namespace}
    group = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": metadata["name"]},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        },
    ]


def _create(kube: Kube, manifest: Manifest, user: str = AUTHOR) -> str:
    return kube.kubectl("create", "--dry-run=server", "-f", "-", "--as", user, stdin=json.dumps(manifest))


def _replace(kube: Kube, manifest: Manifest, user: str = AUTHOR) -> str:
    return kube.kubectl("replace", "--dry-run=server", "-f", "-", "--as", user, stdin=json.dumps(manifest))


def _is_denied(kube: Kube, manifest: Manifest) -> bool:
    try:
        _create(kube, manifest)
    except DemoError as error:
        return "secret-references" in str(error)
    return False


@pytest.mark.parametrize("field", FIELDS)
def test_a_secret_that_the_author_may_not_read_is_denied(private: Kube, place: str, field: str) -> None:
    with pytest.raises(DemoError, match="secret-references") as denied:
        _create(private, _naming(field, "theirs", place))
    assert field in str(denied.value)
    assert "theirs" in str(denied.value)


@pytest.mark.parametrize("field", FIELDS)
def test_a_secret_that_the_author_may_read_is_admitted(private: Kube, place: str, field: str) -> None:
    assert "created" in _create(private, _naming(field, "mine-2", place))


def test_a_csi_volume_names_a_secret_too(private: Kube, place: str) -> None:
    volume = {"name": "v", "csi": {"driver": "d.example.com", "nodePublishSecretRef": {"name": "theirs"}}}
    with pytest.raises(DemoError, match=r"spec\.podTemplate\.volumes"):
        _create(private, resource("r", place, couchbase=_couchbase(), podTemplate={"volumes": [volume]}))


def test_two_new_names_in_a_list_are_asked_for_by_name(private: Kube, place: str) -> None:
    engine = {"env": _env("mine-1", "mine-2", "mine-1", "mine-2")}
    assert "created" in _create(private, resource("r", place, couchbase=_couchbase(), engine=engine))
    engine = {"env": _env("mine-1", "theirs", "mine-1")}
    with pytest.raises(DemoError, match="theirs"):
        _create(private, resource("r", place, couchbase=_couchbase(), engine=engine))


def test_three_new_names_need_the_right_to_read_all_secrets(private: Kube, place: str) -> None:
    manifest = resource("r", place, couchbase=_couchbase(), engine={"env": _env(*MINE)})
    with pytest.raises(DemoError, match="on all Secrets"):
        _create(private, manifest)
    assert "created" in _create(private, manifest, READER_OF_ALL)


def test_every_field_at_once_stays_within_the_cost_limit(private: Kube, place: str) -> None:
    two = ["one", "two"]
    manifest = resource(
        "r",
        place,
        model={"id": "Qwen/Qwen3-8B", "tokenSecretRef": {"name": "token", "key": "token"}},
        couchbase=_couchbase(tls={"caSecretRef": {"name": "ca", "key": "ca.crt"}}),
        engine={"env": _env(*two * 32), "envFrom": [{"secretRef": {"name": name}} for name in two * 8]},
        cache={"env": _env(*two * 32)},
        podTemplate={
            "volumes": [{"name": f"v{n}", "secret": {"secretName": name}} for n, name in enumerate(two * 16)],
            "imagePullSecrets": [{"name": name} for name in two],
        },
    )
    assert "created" in _create(private, manifest, READER_OF_ALL)


@pytest.fixture
def existing(private: Kube, place: str) -> Iterator[Manifest]:
    """A resource by an administrator that names Secrets which the author may not read."""
    token = {"id": "Qwen/Qwen3-8B", "tokenSecretRef": {"name": "theirs", "key": "token"}}
    manifest = resource(
        "existing",
        place,
        model=token,
        couchbase=_couchbase(adminSecretRef={"name": "theirs"}),
        engine={"env": _env("theirs", "theirs-2", "theirs-3")},
    )
    private.kubectl("create", "-f", "-", stdin=json.dumps(manifest))
    yield manifest
    private.kubectl("delete", "lmcb", "existing", "-n", place)


def test_what_was_named_before_needs_no_right(private: Kube, existing: Manifest) -> None:
    scaled = copy.deepcopy(existing)
    scaled["spec"]["replicas"] = 5
    scaled["spec"]["engine"]["env"] = _env("theirs-3", "mine-1", "theirs")
    assert "replaced" in _replace(private, scaled)


def test_a_new_name_beside_old_ones_needs_the_right(private: Kube, existing: Manifest) -> None:
    changed = copy.deepcopy(existing)
    changed["spec"]["engine"]["env"] = _env("theirs", "theirs-4")
    with pytest.raises(DemoError, match="theirs-4"):
        _replace(private, changed)


def test_an_old_name_in_another_field_needs_the_right(private: Kube, existing: Manifest) -> None:
    changed = copy.deepcopy(existing)
    changed["spec"]["cache"] = {"env": _env("theirs")}
    with pytest.raises(DemoError, match=r"spec\.cache\.env"):
        _replace(private, changed)


@pytest.mark.parametrize(
    "change",
    [
        {"connectionString": "couchbase://elsewhere.example.com"},
        {"managementEndpoints": ["http://elsewhere.example.com:8091"]},
        {"tls": {"insecureSkipVerify": True}},
    ],
)
def test_sending_the_password_elsewhere_needs_the_right(
    private: Kube, existing: Manifest, change: dict[str, Any]
) -> None:
    changed = copy.deepcopy(existing)
    changed["spec"]["couchbase"] |= change
    with pytest.raises(DemoError, match=r"spec\.couchbase\.adminSecretRef names Secret theirs"):
        _replace(private, changed)


def test_sending_the_token_elsewhere_needs_the_right(private: Kube, existing: Manifest) -> None:
    changed = copy.deepcopy(existing)
    changed["spec"]["model"]["config"] = {"hub": {"endpoint": "https://elsewhere.example.com"}}
    with pytest.raises(DemoError, match=r"spec\.model\.tokenSecretRef names Secret theirs"):
        _replace(private, changed)


def test_the_policy_can_be_turned_off(private: Kube, tmp_path: Path) -> None:
    rendered = Release(private, "anywhere", tmp_path).template({"admissionPolicy": {"enabled": False}})
    assert not [each for each in rendered if each["kind"].startswith("ValidatingAdmissionPolicy")]
