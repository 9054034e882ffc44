"""Management REST: local users."""

from collections.abc import Iterator

import pytest

from e2e.conformance.conftest import Place
from e2e.conformance.world import PASSWORD, World, succeed, unique

USERS = "/settings/rbac/users/local"


@pytest.fixture
def user(world: World, place: Place) -> Iterator[str]:
    """Path of a user with two roles and a name."""
    path = f"{USERS}/{unique('user')}"
    form = {
        "password": PASSWORD,
        "name": "owner mark",
        "roles": f"data_reader[{place.path}],data_writer[{place.path}]",
    }
    response = succeed(world.http.put(path, data=form))
    assert response.json() == ""
    yield path
    world.http.delete(path)


def test_user_shows_roles_name_and_uuid(world: World, place: Place, user: str) -> None:
    """Roles come back taken apart, with their origin."""
    shown = world.http.get(user).json()
    assert shown["domain"] == "local"
    assert shown["name"] == "owner mark"
    assert shown["uuid"]
    assert [
        (role["role"], role["bucket_name"], role["scope_name"], role["collection_name"]) for role in shown["roles"]
    ] == [
        ("data_reader", place.bucket, place.scope, place.collection),
        ("data_writer", place.bucket, place.scope, place.collection),
    ]
    assert shown["roles"][0]["origins"] == [{"type": "user"}]


def test_put_replaces_everything_but_the_password(world: World, user: str) -> None:
    """Roles and name that are not sent are gone; the uuid stays."""
    before = world.http.get(user).json()
    succeed(world.http.put(user, data={"roles": ""}))
    after = world.http.get(user).json()
    assert (after["roles"], after["name"], after["uuid"]) == ([], "", before["uuid"])
    world.await_login(user.rpartition("/")[2], PASSWORD)


@pytest.mark.parametrize(
    "role",
    [
        "data_reeder[{path}]",
        "data_reader",
        "data_reader[]",
        "data_reader[{path}",
        "data_reader[no-such-bucket]",
        "data_reader[{bucket}:no-such-scope]",
        "data_reader[{bucket}:{scope}:no-such-collection]",
        "data_reader[{path}:more]",
        "admin[{bucket}]",
    ],
)
def test_bad_roles_are_listed(world: World, place: Place, role: str) -> None:
    """400 on `roles`, naming the culprit; the user is not created."""
    text = role.format(path=place.path, bucket=place.bucket, scope=place.scope)
    path = f"{USERS}/{unique('user')}"
    response = world.http.put(path, data={"password": PASSWORD, "roles": text})
    assert response.status_code == 400
    assert text in response.json()["errors"]["roles"]
    assert world.http.get(path).status_code == 404


def test_bad_requests(world: World) -> None:
    """A new user needs a good password and a legal name; unknown parameters are refused."""
    for username, form in (
        (unique("user"), {"roles": ""}),
        (unique("user"), {"roles": "", "password": "x"}),
        (unique("user"), {"roles": "", "password": PASSWORD, "colour": "red"}),
        ("semi;colon", {"roles": "", "password": PASSWORD}),
        ("@at", {"roles": "", "password": PASSWORD}),
        ("x" * 129, {"roles": "", "password": PASSWORD}),
    ):
        response = world.http.put(f"{USERS}/{username}", data=form)
        assert response.status_code == 400, username
        assert response.json()["errors"]


def test_absent_user(world: World) -> None:
    """404 with a JSON string, for reading and deleting; an unknown domain as well."""
    path = f"{USERS}/{unique('nobody')}"
    for response in (world.http.get(path), world.http.delete(path), world.http.get("/settings/rbac/users/moon/x")):
        assert response.status_code == 404
        assert isinstance(response.json(), str)


def test_patch_changes_the_password_only(world: World, user: str) -> None:
    """Roles and name stay; the same password again is refused."""
    before = world.http.get(user).json()
    response = world.http.patch(user, data={"password": "another-Password-2!"})
    assert response.status_code == 200
    assert world.http.get(user).json()["roles"] == before["roles"]
    world.await_login(user.rpartition("/")[2], "another-Password-2!")
    assert "password" in world.http.patch(user, data={"password": "another-Password-2!"}).json()["errors"]


def test_dropping_the_bucket_strips_roles(world: World) -> None:
    """A user keeps no role on a bucket that is gone, even when its namesake appears."""
    bucket = world.make_bucket()
    username = world.make_user(f"data_reader[{bucket}]")
    world.drop_bucket(bucket)
    assert world.http.get(f"{USERS}/{username}").json()["roles"] == []
    world.make_bucket(bucket)
    assert world.http.get(f"{USERS}/{username}").json()["roles"] == []
