"""The error map (version 2): names and attributes of status codes, from which clients learn what may be retried."""

import json

from e2e.couchbase_emulator.kv.opcodes import Status

_ATTRIBUTES: dict[Status, tuple[str, list[str]]] = {
    Status.SUCCESS: ("Success", ["success"]),
    Status.KEY_ENOENT: ("Not Found", ["item-only"]),
    Status.KEY_EEXISTS: ("key already exists, or CAS mismatch", ["item-only"]),
    Status.E2BIG: ("Value is too big", ["item-only", "invalid-input"]),
    Status.EINVAL: ("Invalid packet", ["internal", "invalid-input"]),
    Status.NOT_STORED: ("Not Stored", ["item-only"]),
    Status.NOT_MY_VBUCKET: ("Server does not know about this vBucket", ["fetch-config", "invalid-input"]),
    Status.NO_BUCKET: ("Not connected to any bucket", ["conn-state-invalidated"]),
    Status.AUTH_ERROR: ("Authentication failed", ["conn-state-invalidated", "auth"]),
    Status.AUTH_CONTINUE: ("Continue authentication", ["special-handling"]),
    Status.EACCESS: ("Not authorized for command", ["support", "auth"]),
    Status.UNKNOWN_COMMAND: ("Unknown command", ["support"]),
    Status.ENOMEM: ("Resource exhausted", ["temp", "retry-later"]),
    Status.ETMPFAIL: ("Temporary failure", ["temp", "retry-later"]),
    Status.UNKNOWN_COLLECTION: ("Operation specified an unknown collection", ["item-only"]),
    Status.DURABILITY_IMPOSSIBLE: ("Not enough replicas for the durability level", ["item-only"]),
    Status.UNKNOWN_SCOPE: ("Operation specified an unknown scope", ["item-only"]),
}

ERROR_MAP = json.dumps(
    {
        "version": 2,
        "revision": 1,
        "errors": {
            f"{status.value:x}": {"name": status.name, "desc": description, "attrs": attributes}
            for status, (description, attributes) in _ATTRIBUTES.items()
        },
    }
).encode()
