"""Settings of the cluster: automatic failover, password policy, certificates, alternate addresses."""

import re

from aiohttp import web

from e2e.couchbase_emulator.model.cluster import AlternateAddress
from e2e.couchbase_emulator.rest.http import Call, RestError, Route, enterprise_only, field_errors, json_response, needs

_POLICY_FLAGS = {
    "enforceUppercase": "uppercase",
    "enforceLowercase": "lowercase",
    "enforceDigits": "digits",
    "enforceSpecialChars": "special",
}
_EPHEMERAL_FLAG = "allowFailoverEphemeralNoReplicas"


async def get_auto_failover(call: Call) -> web.Response:
    """Settings of automatic failover."""
    settings = call.cluster.auto_failover
    body: dict[str, object] = {
        "enabled": settings.enabled,
        "timeout": settings.timeout_seconds,
        "count": settings.count,
        "maxCount": settings.max_count,
    }
    if call.cluster.options.is_enterprise:
        body |= {
            "failoverOnDataDiskIssues": {"enabled": False, "timePeriod": 120},
            "failoverPreserveDurabilityMajority": False,
            "canAbortRebalance": True,
        }
        if call.cluster.options.major_minor >= (8, 0):
            body[_EPHEMERAL_FLAG] = settings.allow_ephemeral_without_replicas
    return json_response(body)


async def set_auto_failover(call: Call) -> web.Response:
    """Change automatic failover."""
    known = ["enabled", "timeout", "maxCount"]
    if call.cluster.options.is_enterprise and call.cluster.options.major_minor >= (8, 0):
        known.append(_EPHEMERAL_FLAG)
    call.refuse_unknown(*known)
    form, settings = call.form, call.cluster.auto_failover
    if form.get("enabled") not in ("true", "false"):
        raise field_errors({"enabled": "The value must be one of the following: [true,false]"})
    timeout = form.get("timeout", str(settings.timeout_seconds))
    if not timeout.isdigit() or not 1 <= int(timeout) <= 3600:
        raise field_errors({"timeout": "The value must be in range from 1 to 3600."})
    count = form.get("maxCount", str(settings.max_count))
    if not count.isdigit() or not 1 <= int(count) <= 100:
        raise field_errors({"maxCount": "The value must be in range from 1 to 100."})
    settings.enabled, settings.timeout_seconds, settings.max_count = form["enabled"] == "true", int(timeout), int(count)
    if _EPHEMERAL_FLAG in form:
        settings.allow_ephemeral_without_replicas = form[_EPHEMERAL_FLAG] == "true"
    return web.Response()


async def get_password_policy(call: Call) -> web.Response:
    """Rules for passwords."""
    policy = call.cluster.password_policy
    flags = {name: getattr(policy, attribute) for name, attribute in _POLICY_FLAGS.items()}
    return json_response({"minLength": policy.min_length} | flags)


async def set_password_policy(call: Call) -> web.Response:
    """Change the rules for passwords."""
    call.refuse_unknown("minLength", *_POLICY_FLAGS)
    policy = call.cluster.password_policy
    length = call.form.get("minLength", str(policy.min_length))
    if not length.isdigit() or not 0 <= int(length) <= 100:
        raise field_errors({"minLength": "The value must be in range from 0 to 100."})
    policy.min_length = int(length)
    for name, attribute in _POLICY_FLAGS.items():
        if name in call.form:
            setattr(policy, attribute, call.form[name] == "true")
    return json_response([])


async def trusted_cas(call: Call) -> web.Response:
    """Certificates of the authorities that the cluster trusts; the PEM needs no login."""
    if not call.cluster.options.is_enterprise:
        raise enterprise_only()
    pem = call.cluster.ca_pem
    if pem is None:
        return json_response([])
    return json_response([{"id": 0, "subject": "CN=Couchbase emulator CA", "type": "generated", "pem": pem}])


async def cluster_certificate(call: Call) -> web.Response:
    """The generated authority, the old way."""
    if call.cluster.ca_pem is None:
        raise RestError(404, text="Certificate is not set up on this cluster")
    return web.Response(text=call.cluster.ca_pem)


async def set_alternate_address(call: Call) -> web.Response:
    """Give this node an external address."""
    hostname = call.form.get("hostname")
    if not hostname or not re.fullmatch(r"[A-Za-z0-9.:_-]+", hostname):
        raise field_errors({"hostname": "The value must be supplied"})
    known = ("mgmt", "kv", "mgmtSSL", "kvSSL")
    call.refuse_unknown("hostname", *known)
    bad = {name: "The value must be a port" for name in known if not call.form.get(name, "1").isdigit()}
    if bad:
        raise field_errors(bad)
    ports = {name: int(call.form[name]) for name in known if name in call.form}
    call.node.alternate = AlternateAddress(hostname, ports)
    call.cluster.revision += 1
    return web.Response()


async def drop_alternate_address(call: Call) -> web.Response:
    """Remove the external address of this node."""
    call.node.alternate = None
    call.cluster.revision += 1
    return web.Response()


_EXTERNAL = "/node/controller/setupAlternateAddresses/external"
_SETUP = needs("write", "admin", "setup")
ROUTES = [
    Route("GET", "/settings/autoFailover", get_auto_failover, needs("read", "settings")),
    Route("POST", "/settings/autoFailover", set_auto_failover, needs("write", "settings")),
    Route("GET", "/settings/passwordPolicy", get_password_policy, needs("read", "admin", "security")),
    Route("POST", "/settings/passwordPolicy", set_password_policy, needs("write", "admin", "security")),
    Route("GET", "/pools/default/trustedCAs", trusted_cas, anonymous=True),
    Route("GET", "/pools/default/certificate", cluster_certificate, anonymous=True),
    Route("PUT", _EXTERNAL, set_alternate_address, _SETUP),
    Route("DELETE", _EXTERNAL, drop_alternate_address, _SETUP),
]
