"""Local users: create, replace, change, delete; roles to choose from."""

import re
import secrets
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from e2e.couchbase_emulator.kv.scram import Credential
from e2e.couchbase_emulator.model.cluster import Cluster
from e2e.couchbase_emulator.model.roles import ROLES
from e2e.couchbase_emulator.model.users import RoleGrant, User
from e2e.couchbase_emulator.rest.http import (
    Call,
    RestError,
    Route,
    enterprise_only,
    field_errors,
    json_response,
    needs,
)
from e2e.couchbase_emulator.rest.role_strings import grant_json, known_roles, parse_roles

_COMMUNITY_USERS = 20
_ID = re.compile(r"[^\x00-\x20\x7f()<>,;:\\\"/\[\]?={}]{1,128}")
_SPECIAL_CHARACTERS = "@%+\\/'\"!#$^?:,(){}[]~`-_*=&.;<>|"


async def list_users(call: Call) -> web.Response:
    """All users, or those of a domain."""
    _check_domain(call.path.get("domain", "local"))
    users = call.cluster.users.values() if call.path.get("domain", "local") == "local" else []
    return json_response([user_json(call.cluster, user) for user in users])


async def get_user(call: Call) -> web.Response:
    """One user."""
    return json_response(user_json(call.cluster, _existing(call)))


async def put_user(call: Call) -> web.Response:
    """Create a user or replace everything but the password."""
    cluster, form = call.cluster, call.form
    _check_local(call)
    call.refuse_unknown("password", "roles", "name", "groups", "locked", "temporaryPassword")
    user_id = call.path["user"]
    existing = cluster.users.get(user_id)
    errors = _id_errors(user_id)
    grants, bad = parse_roles(cluster, form.get("roles", ""))
    if bad:
        errors["roles"] = (
            "Cannot assign roles to user because the following roles are unknown, malformed or role parameters are "
            f"undefined: [{','.join(bad)}]"
        )
    password = form.get("password")
    if password is None and existing is None:
        errors["password"] = "Password is required for new user."
    elif password is not None:
        errors |= password_errors(cluster, password)
    if form.get("groups") and not cluster.options.is_enterprise:
        errors["groups"] = "User groups require enterprise edition"
    elif form.get("groups"):
        errors["groups"] = f"Groups do not exist: {form['groups']}"
    locked, temporary = _flag(call, "locked", errors), _flag(call, "temporaryPassword", errors)
    if errors:
        raise field_errors(errors)
    _check_may_grant(call, (*grants, *(existing.grants if existing else ())))
    if existing is None and not cluster.options.is_enterprise and len(cluster.users) >= _COMMUNITY_USERS:
        raise field_errors({"_": "You cannot create any more users on Community Edition."})
    cluster.put_user(
        User(
            user_id=user_id,
            credential=_credential(existing, password),
            grants=grants,
            name=form.get("name", ""),
            locked=locked,
            temporary_password=temporary,
            uuid=existing.uuid if existing else _new_uuid(),
            password_changed=existing.password_changed if existing and password is None else _now(),
        )
    )
    return json_response("")


async def patch_user(call: Call) -> web.Response:
    """Change password or lock."""
    cluster, form = call.cluster, call.form
    if cluster.options.major_minor < (7, 6):
        raise RestError(405, text="Method Not Allowed")
    _check_local(call)
    known = ("password", "locked") if cluster.options.major_minor >= (8, 0) else ("password",)
    call.refuse_unknown(*known)
    user = _existing(call)
    _check_may_grant(call, user.grants)
    errors: dict[str, str] = {}
    locked = _flag(call, "locked", errors) if "locked" in form else user.locked
    password = form.get("password")
    if not form:
        errors["_"] = "No parameters were given"
    if password is not None:
        errors |= password_errors(cluster, password)
        if not errors and user.credential.matches(password):
            errors["password"] = "Password has already been used."
    if errors:
        raise field_errors(errors)
    changed = user.password_changed if password is None else _now()
    cluster.put_user(replace(user, credential=_credential(user, password), locked=locked, password_changed=changed))
    return web.Response()


async def delete_user(call: Call) -> web.Response:
    """Delete a user."""
    user = _existing(call)
    _check_may_grant(call, user.grants)
    call.cluster.remove_user(user.user_id)
    return json_response("")


async def list_roles(call: Call) -> web.Response:
    """Roles that can be given."""
    return json_response(
        [
            {"role": name, "name": role.title, "desc": role.title}
            | dict.fromkeys(("bucket_name", "scope_name", "collection_name")[: role.parameters], "*")
            for name, role in known_roles(call.cluster).items()
        ]
    )


async def groups(call: Call) -> web.Response:
    """Groups are not modelled: there is none, and Community Edition has no groups at all."""
    if not call.cluster.options.is_enterprise:
        raise enterprise_only()
    return json_response([])


def user_json(cluster: Cluster, user: User) -> dict[str, Any]:
    """A user as REST shows it; grants whose bucket, scope or collection is gone are left out."""
    body: dict[str, Any] = {
        "id": user.user_id,
        "domain": "local",
        "roles": [grant_json(grant) for grant in user.grants if cluster.is_current(grant)],
        "groups": [],
        "external_groups": [],
        "name": user.name,
        "uuid": user.uuid,
        "password_change_date": user.password_changed,
    }
    if cluster.options.major_minor >= (8, 0):
        body |= {"locked": user.locked, "temporary_password": user.temporary_password}
    return body


def password_errors(cluster: Cluster, password: str) -> dict[str, str]:
    """What the policy has against a password, as the error of its field."""
    policy = cluster.password_policy
    if any(character < " " or character == "\x7f" for character in password):
        return {"password": "The password must not contain control characters and be valid utf8"}
    checks = [
        (len(password) >= policy.min_length, f"must be at least {policy.min_length} characters long"),
        (not policy.uppercase or password.lower() != password, "must contain at least one uppercase letter"),
        (not policy.lowercase or password.upper() != password, "must contain at least one lowercase letter"),
        (not policy.digits or any(map(str.isdigit, password)), "must contain at least one digit"),
        (not policy.special or any(map(_SPECIAL_CHARACTERS.__contains__, password)),
         f"must contain at least one of the following characters: {_SPECIAL_CHARACTERS}"),
    ]  # fmt: skip
    return next(({"password": f"The password {problem}."} for passed, problem in checks if not passed), {})


def _check_may_grant(call: Call, grants: tuple[RoleGrant, ...]) -> None:
    if any(ROLES[grant.role].security for grant in grants):
        call.require(("admin", "security", "admin"), "write")


def _check_domain(domain: str) -> None:
    if domain not in ("local", "external"):
        raise RestError(404, "Unknown user domain.")


def _check_local(call: Call) -> None:
    _check_domain(call.path["domain"])
    if call.path["domain"] != "local":
        if not call.cluster.options.is_enterprise:
            raise enterprise_only()
        raise RestError(400, {"errors": {"_": "The emulator knows no external users"}})


def _existing(call: Call) -> User:
    _check_domain(call.path["domain"])
    user = call.cluster.users.get(call.path["user"]) if call.path["domain"] == "local" else None
    if user is None:
        raise RestError(404, "Unknown user.")
    return user


def _id_errors(user_id: str) -> dict[str, str]:
    if len(user_id) > 128:
        return {"_": "Username may not exceed 128 characters"}
    if user_id.startswith("@") or not _ID.fullmatch(user_id):
        return {
            "_": 'The username must not contain spaces, control or any of ()<>,;:\\"/[]?={} characters and must be '
            "valid utf8. Username must not start with @"
        }
    return {}


def _flag(call: Call, field: str, errors: dict[str, str]) -> bool:
    text = call.form.get(field)
    if text is None:
        return False
    if not call.cluster.options.is_enterprise or call.cluster.options.major_minor < (8, 0):
        errors[field] = "Supported in enterprise edition only"
    elif text not in ("true", "false"):
        errors[field] = "The value must be one of the following: [true,false]"
    return text == "true"


def _credential(existing: User | None, password: str | None) -> Credential:
    if password is not None:
        return Credential(password)
    if existing is None:
        raise field_errors({"password": "Password is required for new user."})
    return existing.credential


def _new_uuid() -> str:
    digits = secrets.token_hex(16)
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


_USERS = "/settings/rbac/users"
_USER = _USERS + "/{domain}/{user}"
_READ, _WRITE = needs("read", "admin", "users"), needs("write", "admin", "users")
ROUTES = [
    Route("GET", _USERS, list_users, _READ),
    Route("GET", _USERS + "/{domain}", list_users, _READ),
    Route("GET", _USER, get_user, _READ),
    Route("PUT", _USER, put_user, _WRITE),
    Route("PATCH", _USER, patch_user, _WRITE),
    Route("DELETE", _USER, delete_user, _WRITE),
    Route("GET", "/settings/rbac/roles", list_roles, _READ),
    Route("GET", "/settings/rbac/groups", groups, _READ),
]
