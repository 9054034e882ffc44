"""Sub-document lookups and statistics: what the SDK needs to read a document together with its expiry.

Only lookups are known, with plain paths (`a.b[0].c`) and the virtual attribute `$document`.
"""

import json
import re
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from e2e.couchbase_emulator.kv.document_commands import read_document
from e2e.couchbase_emulator.kv.frames import Request
from e2e.couchbase_emulator.kv.opcodes import Opcode, Status
from e2e.couchbase_emulator.kv.session import Session
from e2e.couchbase_emulator.model.documents import StoredDocument

_XATTR_FLAG = 0x04
_MAX_PATHS = 16
_PATH_STEP = re.compile(r"(?:^|\.)([^.\[\]]+)|\[(-1|\d+)\]")
_SPEC = struct.Struct(">BBH")
_RESULT = struct.Struct(">HI")


class _Spec(NamedTuple):
    opcode: int
    is_xattr: bool
    path: str


class _LookupError(Exception):
    def __init__(self, status: Status) -> None:
        super().__init__(status.name)
        self.status = status


def lookup(session: Session, request: Request) -> None:
    """Several paths of one document, each with a status of its own."""
    specs = _parse_specs(bytes(request.value))
    if specs is None:
        session.refuse(request, Status.EINVAL, "malformed lookup")
        return
    if not 0 < len(specs) <= _MAX_PATHS:
        session.refuse(request, Status.SUBDOC_INVALID_COMBO, f"1 to {_MAX_PATHS} paths are possible")
        return
    document = read_document(session, request)
    if document is None:
        return
    results, overall = [], Status.SUCCESS
    for spec in specs:
        try:
            value, status = _look(document, spec), Status.SUCCESS
        except _LookupError as error:
            value, status, overall = b"", error.status, Status.SUBDOC_MULTI_PATH_FAILURE
        results.append(_RESULT.pack(status, len(value)) + value)
    session.reply(request, overall, value=b"".join(results), cas=document.cas)


def statistics(session: Session, request: Request) -> None:
    """The basic statistics group: one answer per value, an empty one at the end."""
    if session.bucket is None:
        session.refuse(request, Status.NO_BUCKET, "no bucket is open")
        return
    found = session.bucket.manifest_on(session.node.index).by_id.get(0)
    if found is not None and "SimpleStats" not in session.privileges(*found):
        session.refuse(request, Status.EACCESS, "Authorization failure: needs SimpleStats")
        return
    if request.key:
        session.refuse(request, Status.KEY_ENOENT, "unknown statistics group")
        return
    documents = session.bucket.documents
    values = {
        "curr_items": documents.count(),
        "ep_max_size": documents.quota_bytes,
        "mem_used": documents.used_bytes[session.node.index],
        "auto_delete_count": documents.evicted_documents,
        "ep_tmp_oom_errors": documents.refused_writes,
        "vb_expired": documents.expired_documents,
    }
    for name, value in values.items():
        session.reply(request, key=name.encode(), value=str(value).encode())
    session.reply(request)


def _parse_specs(body: bytes) -> list[_Spec] | None:
    specs, at = [], 0
    while at < len(body):
        if at + _SPEC.size > len(body):
            return None
        opcode, flags, path_bytes = _SPEC.unpack_from(body, at)
        at += _SPEC.size
        path = body[at : at + path_bytes]
        if len(path) != path_bytes:
            return None
        at += path_bytes
        specs.append(_Spec(opcode, bool(flags & _XATTR_FLAG), path.decode(errors="replace")))
    return specs


def _look(document: StoredDocument, spec: _Spec) -> bytes:
    if spec.opcode == Opcode.GET and not spec.path:
        return bytes(document.value)
    root = _attributes(document, spec.path) if spec.is_xattr else _json_of(document)
    found = _follow(root, spec.path)
    if spec.opcode == Opcode.SUBDOC_EXISTS:
        return b""
    if spec.opcode == Opcode.SUBDOC_GET_COUNT:
        if not isinstance(found, list | dict):
            raise _LookupError(Status.SUBDOC_PATH_MISMATCH)
        return str(len(found)).encode()
    if spec.opcode != Opcode.SUBDOC_GET:
        raise _LookupError(Status.SUBDOC_INVALID_COMBO)
    return json.dumps(found, separators=(",", ":")).encode()


def _attributes(document: StoredDocument, path: str) -> dict[str, Any]:
    if path.startswith("$") and path.partition(".")[0] != "$document":
        raise _LookupError(Status.SUBDOC_XATTR_UNKNOWN_VATTR)
    return {
        "$document": {
            "CAS": f"0x{document.cas:016x}",
            "seqno": f"0x{document.seqno:016x}",
            "exptime": document.expiry,
            "value_bytes": len(document.value),
            "deleted": False,
            "flags": document.flags,
        }
    }


def _json_of(document: StoredDocument) -> Any:
    try:
        return json.loads(bytes(document.value))
    except ValueError:
        raise _LookupError(Status.SUBDOC_DOC_NOT_JSON) from None


def _follow(root: Any, path: str) -> Any:
    at = 0
    for step in _PATH_STEP.finditer(path):
        if step.start() != at:
            raise _LookupError(Status.SUBDOC_PATH_EINVAL)
        at = step.end()
        name, index = step.groups()
        root = _element(root, int(index)) if name is None else _field(root, name)
    if at != len(path):
        raise _LookupError(Status.SUBDOC_PATH_EINVAL)
    return root


def _field(container: Any, name: str) -> Any:
    if not isinstance(container, dict):
        raise _LookupError(Status.SUBDOC_PATH_MISMATCH)
    if name not in container:
        raise _LookupError(Status.SUBDOC_PATH_ENOENT)
    return container[name]


def _element(container: Any, index: int) -> Any:
    if not isinstance(container, list):
        raise _LookupError(Status.SUBDOC_PATH_MISMATCH)
    if index >= len(container) or not container:
        raise _LookupError(Status.SUBDOC_PATH_ENOENT)
    return container[index]


LOOKUP_COMMANDS: dict[int, Callable[[Session, Request], None]] = {
    Opcode.SUBDOC_MULTI_LOOKUP: lookup,
    Opcode.STAT: statistics,
}
