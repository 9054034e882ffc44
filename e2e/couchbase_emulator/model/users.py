"""Local users, the roles they hold, and the copy of both that each data node works with."""

import uuid
from dataclasses import dataclass, field

from e2e.couchbase_emulator.kv.scram import Credential
from e2e.couchbase_emulator.model.roles import EVERYWHERE, PermissionObject, Target, role_allows


@dataclass(frozen=True)
class RoleGrant:
    """A role given to a user, pinned to the identifiers its parameters had when it was given."""

    role: str
    target: Target = EVERYWHERE
    bucket_uuid: str | None = None
    scope_uid: int | None = None
    collection_uid: int | None = None

    def allows(self, wanted: PermissionObject, operation: str) -> bool:
        """Whether this grant allows the operation; the caller has dropped grants whose pins are stale."""
        return role_allows(self.role, self.target, wanted, operation)


@dataclass(frozen=True)
class User:
    """A local user; every change makes a new record."""

    user_id: str
    credential: Credential
    grants: tuple[RoleGrant, ...] = ()
    name: str = ""
    locked: bool = False
    temporary_password: bool = False
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    password_changed: str = ""


class NodeUsers:
    """What one data node knows about users; changes reach it later than REST answers."""

    def __init__(self) -> None:
        self._users: dict[str, User] = {}
        self.generation = 0

    def get(self, user_id: str) -> User | None:
        """The user as this node knows it, or None; locked users are unknown to a data node."""
        user = self._users.get(user_id)
        return None if user is None or user.locked else user

    def put(self, user: User) -> None:
        """Learn of a new or changed user."""
        self._users[user.user_id] = user
        self.generation += 1

    def remove(self, user_id: str) -> None:
        """Learn that a user is gone."""
        self._users.pop(user_id, None)
        self.generation += 1
