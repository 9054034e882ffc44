"""Management REST: cluster, addresses, settings, credentials."""

import httpx
import pytest

from e2e.conformance.conftest import Place
from e2e.conformance.target import Target
from e2e.conformance.world import PASSWORD, World


def test_pools_identifies_the_cluster(world: World) -> None:
    """`/pools` carries uuid, version and edition, `/pools/default` state and memory of all nodes."""
    pools = world.http.get("/pools").json()
    assert len(pools["uuid"]) == 32
    assert pools["pools"]
    assert isinstance(pools["isEnterprise"], bool)
    assert pools["implementationVersion"].split(".")[0].isdigit()
    pool = world.http.get("/pools/default").json()
    assert {node["status"] for node in pool["nodes"]} == {"healthy"}
    assert all({"hostname", "services", "version", "clusterMembership"} <= node.keys() for node in pool["nodes"])
    assert sum(bool(node.get("thisNode")) for node in pool["nodes"]) == 1
    ram = pool["storageTotals"]["ram"]
    assert ram["quotaTotal"] == ram["quotaTotalPerNode"] * len(pool["nodes"])
    assert 0 <= ram["quotaUsedPerNode"] <= ram["quotaTotalPerNode"]


def test_node_services_names_ports(world: World) -> None:
    """Every node tells its management and data ports."""
    nodes = world.http.get("/pools/default/nodeServices").json()["nodesExt"]
    assert nodes
    assert all({"mgmt", "kv"} <= node["services"].keys() for node in nodes)


def test_without_and_with_wrong_credentials(target: Target) -> None:
    """401 with an empty body either way."""
    verify = target.tls_context() or True
    for auth in (None, (target.username, "wrong-Password-1"), ("nobody-at-all", target.password)):
        response = httpx.get(f"{target.management_url}/pools/default", auth=auth, verify=verify)
        assert response.status_code == 401
        assert response.content == b""


def test_unknown_route(world: World) -> None:
    """404 as plain text."""
    response = world.http.get("/no/such/route")
    assert response.status_code == 404
    assert "not found" in response.text.lower()
    assert "json" not in response.headers.get("content-type", "")


def test_cluster_uuid_guard(world: World) -> None:
    """`uuid` in the query must be the cluster's."""
    uuid = world.http.get("/pools").json()["uuid"]
    assert world.http.get(f"/pools/default?uuid={uuid}").status_code == 200
    assert world.http.get(f"/pools/default?uuid={'0' * 32}").status_code == 404


def test_auto_failover_can_be_read(world: World) -> None:
    """Settings of automatic failover."""
    settings = world.http.get("/settings/autoFailover").json()
    assert {"enabled", "timeout", "count", "maxCount"} <= settings.keys()


def test_password_policy_can_be_read(world: World) -> None:
    """Rules for passwords."""
    policy = world.http.get("/settings/passwordPolicy").json()
    assert isinstance(policy["minLength"], int)
    assert {"enforceUppercase", "enforceLowercase", "enforceDigits", "enforceSpecialChars"} <= policy.keys()


def test_trusted_authorities_need_no_login(target: Target) -> None:
    """The PEM of the authority can be fetched before anything is trusted."""
    response = httpx.get(f"{target.management_url}/pools/default/trustedCAs", verify=target.tls_context() or True)
    assert response.status_code == 200
    assert all("BEGIN CERTIFICATE" in entry["pem"] for entry in response.json())


def test_setup_cannot_be_repeated(world: World) -> None:
    """`clusterInit` on a cluster is refused on the field `services`."""
    form = {"services": "kv", "port": "SAME", "username": "x", "password": PASSWORD}
    response = world.http.post("/clusterInit", data=form)
    assert response.status_code == 400
    assert "services" in response.json()["errors"]


@pytest.fixture
def app(target: Target, world: World, place: Place) -> httpx.Client:
    """REST as a user with the roles of an application."""
    user = world.make_user(f"data_reader[{place.path}],data_writer[{place.path}]")
    return target.http(user, PASSWORD)


def test_application_user_on_rest(app: httpx.Client, world: World, place: Place) -> None:
    """It sees itself, the cluster and its bucket, and nothing else."""
    bucket = f"/pools/default/buckets/{place.bucket}"
    other = world.make_bucket()
    assert app.get("/whoami").json()["domain"] == "local"
    assert app.get("/pools").status_code == 200
    assert app.get("/pools/default").status_code == 200
    assert app.get(bucket).json()["basicStats"]["itemCount"] >= 0
    assert [found["name"] for found in app.get("/pools/default/buckets").json()] == [place.bucket]
    for response in (
        app.get(f"/pools/default/buckets/{other}"),
        app.get(f"{bucket}/scopes"),
        app.get("/settings/rbac/users/local"),
        app.get("/settings/passwordPolicy"),
        app.post(bucket, data={"ramQuota": 200}),
        app.delete(bucket),
        app.post("/pools/default/buckets", data={"name": "x"}),
    ):
        assert response.status_code == 403
        assert response.json()["permissions"]


def test_check_permissions(app: httpx.Client, place: Place) -> None:
    """A map of answers, negatives included; malformed questions are refused."""
    mine = f"cluster.collection[{place.path}].data.docs"
    foreign = f"cluster.collection[{place.bucket}:_default:_default].data.docs!read"
    questions = [f"{mine}!read", f"{mine}!upsert", f"{mine}!delete", foreign, "cluster.admin.security!read"]
    answers = app.post("/pools/default/checkPermissions", content=",".join(questions)).json()
    assert [answers[question] for question in questions] == [True, True, True, False, False]
    assert app.post("/pools/default/checkPermissions", content="nonsense").status_code == 400
