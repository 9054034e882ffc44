"""First setup of a node."""

from aiohttp import web

from e2e.couchbase_emulator.rest.http import Call, Route, field_errors, json_response, needs
from e2e.couchbase_emulator.rest.users import password_errors

_KNOWN = ("services", "port", "username", "password", "memoryQuota", "clusterName", "hostname", "dataPath", "afamily",
          "nodeEncryption", "indexerStorageMode", "allowedHosts", "sendStats", "indexMemoryQuota", "ftsMemoryQuota",
          "indexPath", "eventingPath", "javaHome", "analyticsPath", "nodeEncryption", "independentPorts")  # fmt: skip
_MIN_QUOTA_MIB = 256


async def cluster_init(call: Call) -> web.Response:
    """Make the node a cluster, in one call."""
    cluster, form = call.cluster, call.form
    errors = {name: "Unsupported key" for name in form if name not in _KNOWN}
    for field in ("services", "username", "password"):
        if not form.get(field):
            errors[field] = "The value must be supplied"
    if cluster.initialised:
        errors["services"] = "cannot change node services after cluster is provisioned"
    elif "services" not in errors and "kv" not in form["services"].split(","):
        errors["services"] = "cannot setup first cluster node without kv service"
    if form.get("port") != "SAME" and not form.get("port", "").isdigit():
        errors["port"] = "The value must be supplied"
    if form.get("password"):
        errors |= password_errors(cluster, form["password"])
    quota_mib = _quota(call, errors)
    if errors:
        raise field_errors(errors)
    cluster.initialise(form["username"], form["password"], name=form.get("clusterName", ""), memory_quota_mib=quota_mib)
    return json_response({"newBaseUri": f"http://{call.request.host}/"})


async def memory_quota(call: Call) -> web.Response:
    """Change quota and name of the cluster."""
    call.refuse_unknown("memoryQuota", "clusterName")
    errors: dict[str, str] = {}
    quota_mib = _quota(call, errors)
    if quota_mib < call.cluster.assigned_mib():
        errors["memoryQuota"] = f"The data service quota ({quota_mib}MB) cannot be less than what buckets use"
    if errors:
        raise field_errors(errors)
    call.cluster.memory_quota_mib = quota_mib
    call.cluster.name = call.form.get("clusterName", call.cluster.name)
    return web.Response()


def _quota(call: Call, errors: dict[str, str]) -> int:
    text = call.form.get("memoryQuota")
    if text is None:
        return call.cluster.memory_quota_mib
    ram_mib = call.cluster.options.ram_total_mib
    highest = max(ram_mib - 1024, ram_mib * 4 // 5)
    if not text.isdigit() or int(text) < _MIN_QUOTA_MIB:
        errors["memoryQuota"] = f"The data service quota cannot be less than {_MIN_QUOTA_MIB}MB."
        return call.cluster.memory_quota_mib
    if int(text) > highest:
        errors["memoryQuota"] = f"Total quota ({text}MB) exceeds the maximum allowed quota ({highest}MB) on the node."
    return int(text)


ROUTES = [
    Route("POST", "/clusterInit", cluster_init, needs("write", "admin", "setup")),
    Route("POST", "/pools/default", memory_quota, needs("write", "pools")),
]
