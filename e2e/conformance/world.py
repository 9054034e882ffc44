"""Things a test needs on a cluster, made over REST and removed again."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx

from e2e.conformance.target import Target
from e2e.conformance.wire import WireClient

PASSWORD = "a-Password-of-2-users!"
_PATIENCE_SECONDS = 60.0


def eventually(condition: Callable[[], bool], what: str, patience_seconds: float = _PATIENCE_SECONDS) -> None:
    """Wait until `condition` holds; fails the test with `what` was waited for."""
    deadline = time.monotonic() + patience_seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {patience_seconds:.0f} s in vain until {what}")
        time.sleep(0.05)


def unique(prefix: str) -> str:
    """A name that nothing else has."""
    return f"{prefix}-{secrets.token_hex(4)}"


def succeed(response: httpx.Response) -> httpx.Response:
    """The response, if it is a success."""
    assert response.is_success, f"{response.request.method} {response.url}: {response.status_code} {response.text}"
    return response


@dataclass
class World:
    """The cluster under test and what was made on it."""

    target: Target
    http: httpx.Client
    _buckets: list[str] = field(default_factory=list)
    _users: list[str] = field(default_factory=list)

    def make_bucket(self, name: str | None = None, **parameters: Any) -> str:
        """Create a small evicting bucket and wait until every node serves it."""
        name = name or unique("bucket")
        defaults = {
            "name": name,
            "bucketType": "ephemeral",
            "ramQuota": 100,
            "replicaNumber": 0,
            "evictionPolicy": "nruEviction",
        }
        response = self.http.post("/pools/default/buckets", data=defaults | parameters)
        assert response.status_code == 202, response.text
        self._buckets.append(name)
        self.await_bucket(name)
        return name

    def await_bucket(self, name: str) -> None:
        """Wait until all nodes of a bucket are healthy and open it."""

        def healthy() -> bool:
            response = self.http.get(f"/pools/default/buckets/{quote(name)}?skipMap=true")
            nodes = response.json()["nodes"] if response.is_success else []
            return bool(nodes) and all(node["status"] == "healthy" for node in nodes)

        eventually(healthy, f"bucket {name} is healthy")

        def opens() -> bool:
            for host, port in self.data_addresses():
                with self.wire(host, port) as client:
                    if client.login(self.target.username, self.target.password) or client.select_bucket(name):
                        return False
            return True

        eventually(opens, f"bucket {name} opens on every node")

    def drop_bucket(self, name: str) -> None:
        """Delete a bucket and wait until its name is free."""
        path = f"/pools/default/buckets/{quote(name)}"
        self.http.delete(path)
        eventually(lambda: self.http.get(path).status_code == 404, f"bucket {name} is gone")

    def make_collection(self, bucket: str, scope: str | None = None, **parameters: Any) -> tuple[str, str]:
        """Create a scope, when none is given, and a collection that every node knows; returns both names."""
        base = f"/pools/default/buckets/{bucket}/scopes"
        if scope is None:
            scope = unique("scope")
            succeed(self.http.post(base, data={"name": scope}))
        collection = parameters.pop("name", None) or unique("collection")
        response = succeed(self.http.post(f"{base}/{scope}/collections", data={"name": collection} | parameters))
        self.ensure_manifest(bucket, response.json()["uid"])
        return scope, collection

    def ensure_manifest(self, bucket: str, uid: str) -> None:
        """Wait until every node knows a manifest."""
        succeed(self.http.post(f"/pools/default/buckets/{bucket}/scopes/@ensureManifest/{uid}"))

    def make_user(self, roles: str, *, password: str = PASSWORD, username: str | None = None) -> str:
        """Create a user that can log in everywhere."""
        username = username or unique("user")
        self._users.append(username)
        succeed(self.http.put(f"/settings/rbac/users/local/{username}", data={"password": password, "roles": roles}))
        self.await_login(username, password)
        return username

    def await_login(self, username: str, password: str) -> None:
        """Wait until every data node knows a user with this password."""

        def known() -> bool:
            for host, port in self.data_addresses():
                with self.wire(host, port) as client:
                    if client.login(username, password) != 0:
                        return False
            return True

        eventually(known, f"user {username} can log in on every node")

    def data_addresses(self) -> list[tuple[str, int]]:
        """Host and data port of every node, TLS ports on a TLS target."""
        service = "kvSSL" if self.target.tls else "kv"
        host = httpx.URL(self.target.management_url).host
        nodes = succeed(self.http.get("/pools/default/nodeServices")).json()["nodesExt"]
        return [(node.get("hostname", host), node["services"][service]) for node in nodes]

    def wire(self, host: str, port: int, *, timeout_seconds: float = 10) -> WireClient:
        """A bare connection that has said hello."""
        client = WireClient(host, port, tls=self.target.tls_context(), timeout_seconds=timeout_seconds)
        client.hello()
        return client

    def clean_up(self) -> None:
        """Remove everything."""
        for username in self._users:
            self.http.delete(f"/settings/rbac/users/local/{username}")
        for bucket in self._buckets:
            if self.http.get(f"/pools/default/buckets/{quote(bucket)}").is_success:
                self.drop_bucket(bucket)
