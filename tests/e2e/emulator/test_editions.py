"""Community Edition, older versions, and a node before its first setup."""

import httpx
import pytest

from e2e.couchbase_emulator import EmulatorOptions
from tests.e2e.emulator.conftest import Start, rest

BUCKET = {"name": "cache", "bucketType": "ephemeral", "ramQuota": 100, "replicaNumber": 0}
BUCKETS = "/pools/default/buckets"


@pytest.fixture
def community(start: Start) -> httpx.Client:
    return rest(start(edition="community"))


def test_community_refuses_enterprise_parameters(community: httpx.Client) -> None:
    assert community.get("/pools").json()["isEnterprise"] is False
    for field, value in (("maxTTL", "0"), ("compressionMode", "off")):
        errors = community.post(BUCKETS, data=BUCKET | {field: value}).json()["errors"]
        assert "enterprise" in errors[field]
    assert community.post(BUCKETS, data=BUCKET).status_code == 202
    shown = community.get(f"{BUCKETS}/cache").json()
    assert "maxTTL" not in shown
    assert "compressionMode" not in shown
    response = community.post(f"{BUCKETS}/cache/scopes/_default/collections", data={"name": "c", "maxTTL": 5})
    assert "enterprise" in response.json()["errors"]["maxTTL"]


def test_community_knows_three_roles_and_twenty_users(community: httpx.Client) -> None:
    community.post(BUCKETS, data=BUCKET)
    roles = {role["role"] for role in community.get("/settings/rbac/roles").json()}
    assert roles == {"admin", "ro_admin", "bucket_full_access"}
    form = {"password": "password-1", "roles": "data_reader[cache]"}
    assert "roles" in community.put("/settings/rbac/users/local/u", data=form).json()["errors"]
    form["roles"] = "bucket_full_access[cache]"
    statuses = [community.put(f"/settings/rbac/users/local/u{n}", data=form).status_code for n in range(21)]
    assert statuses == [200] * 20 + [400]


def test_community_has_no_authorities_and_no_groups(community: httpx.Client) -> None:
    response = community.get("/pools/default/trustedCAs")
    assert response.status_code == 404
    assert response.headers["x-enterprise-edition-needed"]
    assert community.get("/settings/rbac/groups").status_code == 404


def test_community_has_no_tls() -> None:
    with pytest.raises(ValueError, match="TLS"):
        EmulatorOptions(edition="community", tls=True)


@pytest.mark.parametrize(
    "options", [{"nodes": 0}, {"memory_quota_mib": 100}, {"edition": "free"}], ids=lambda options: next(iter(options))
)
def test_impossible_options(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="must be"):
        EmulatorOptions(**options)  # type: ignore[arg-type]


def test_old_version_has_no_online_eviction_change(start: Start) -> None:
    old = rest(start(version="7.6.5"))
    old.post(BUCKETS, data=BUCKET)
    change = {"evictionPolicy": "nruEviction"}
    assert "evictionPolicy" in old.post(f"{BUCKETS}/cache", data=change).json()["errors"]
    assert "numVBuckets" in old.post(BUCKETS, data=BUCKET | {"name": "x", "numVBuckets": 1024}).json()["errors"]
    new = rest(start(version="8.0.2"))
    new.post(BUCKETS, data=BUCKET)
    assert new.post(f"{BUCKETS}/cache", data=change).status_code == 200


def test_user_administrator_of_each_version(start: Start) -> None:
    for version, role, other in (
        ("8.0.2", "user_admin_local", "security_admin_local"),
        ("7.6.5", "security_admin_local", "user_admin_local"),
    ):
        emulator = start(version=version)
        emulator.create_bucket("cache")
        with pytest.raises(ValueError, match=other):
            emulator.create_user("operator", "password-1", f"cluster_admin,{other}")
        emulator.create_user("operator", "password-1", f"cluster_admin,{role}")
        with httpx.Client(base_url=emulator.management_urls[0], auth=("operator", "password-1")) as http:
            users = "/settings/rbac/users/local"
            app = {"password": "password-2", "roles": "data_reader[cache]"}
            assert http.put(f"{users}/app", data=app).status_code == 200
            assert http.put(f"{users}/root", data=app | {"roles": "admin"}).status_code == 403
            assert http.post(BUCKETS, data=BUCKET | {"name": "other"}).status_code == 202


def test_first_setup(start: Start) -> None:
    emulator = start(uninitialised=True)
    http = httpx.Client(base_url=emulator.management_urls[0])
    pools = http.get("/pools").json()
    assert (pools["pools"], pools["uuid"]) == ([], [])
    absent = http.get("/pools/default")
    assert (absent.status_code, absent.json()) == (404, "unknown pool")
    form = {"services": "kv", "port": "SAME", "username": "root", "password": "root-password", "memoryQuota": "512"}
    for field, bad in (
        ("services", {"services": "index"}),
        ("memoryQuota", {"memoryQuota": "100"}),
        ("memoryQuota", {"memoryQuota": "900000"}),
        ("password", {"password": "x"}),
        ("colour", {"colour": "red"}),
    ):
        assert field in http.post("/clusterInit", data=form | bad).json()["errors"]
    response = http.post("/clusterInit", data=form)
    assert response.status_code == 200
    assert "newBaseUri" in response.json()
    assert http.get("/pools").status_code == 401
    http.auth = httpx.BasicAuth("root", "root-password")
    assert http.get("/pools/default").json()["storageTotals"]["ram"]["quotaTotalPerNode"] == 512 * 1024 * 1024
    assert http.post("/clusterInit", data=form).status_code == 400


def test_locked_user_and_temporary_password(start: Start) -> None:
    emulator = start()
    emulator.create_bucket("cache")
    http = rest(emulator)
    path = "/settings/rbac/users/local/app"
    form = {"password": "app-password", "roles": "data_reader[cache]"}
    app = httpx.Client(base_url=emulator.management_urls[0], auth=("app", "app-password"))
    http.put(path, data=form | {"temporaryPassword": "true"})
    assert app.get("/pools").json()["passwordExpired"] is True
    http.put(path, data=form)
    assert app.get("/pools").status_code == 200
    assert http.patch(path, data={"locked": "true"}).status_code == 200
    assert app.get("/pools").status_code == 401
    # A full replacement that does not speak of the lock opens it.
    http.put(path, data=form)
    assert app.get("/pools").status_code == 200
