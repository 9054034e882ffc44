"""Range scans: keys or documents of a collection in one vBucket, in the order of the keys.

Requests and answers are those of kv_engine `docs/range_scans`. Buckets without a disk have none. Sampling and snapshot
requirements are not known.
"""

import base64
import binascii
import json
import secrets
import struct
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from e2e.couchbase_emulator.kv.frames import Request, encode_leb128
from e2e.couchbase_emulator.kv.opcodes import DATATYPE_JSON, Opcode, Status
from e2e.couchbase_emulator.kv.session import Session
from e2e.couchbase_emulator.model.bucket import Bucket, RangeScan
from e2e.couchbase_emulator.model.documents import StoredDocument

_SCAN_LIFETIME_SECONDS = 180  # kv_engine `range_scan_max_lifetime`
_ID_BYTES = 16
_CONTINUE = struct.Struct(f">{_ID_BYTES}sIII")  # identifier, most items, milliseconds, bytes; 0 = no limit
_META = struct.Struct(">IIQQB")
# A batch of this size is sent before the next item is added to it.
_BATCH_BYTES = 8 * 1024


class _Wanted(NamedTuple):
    collection_id: int
    key_only: bool
    start: bytes
    end: bytes
    includes_start: bool
    includes_end: bool

    def holds(self, key: bytes) -> bool:
        """Whether a key is in the range."""
        after_start = key >= self.start if self.includes_start else key > self.start
        return after_start and (key <= self.end if self.includes_end else key < self.end)


def create(session: Session, request: Request) -> None:
    """Begin a scan; the answer is its identifier, or "no such key" for an empty range."""
    bucket = _open_bucket(session, request)
    if bucket is None:
        return
    if request.datatype != DATATYPE_JSON:
        session.refuse(request, Status.EINVAL, "the datatype must be JSON")
        return
    try:
        wanted = _parse(json.loads(bytes(request.value)))
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
        session.refuse(request, Status.EINVAL, "malformed range scan")
        return
    if not _may_scan(session, request, bucket, wanted.collection_id):
        return
    prefix = encode_leb128(wanted.collection_id)
    found = [
        (key[len(prefix) :], document)
        for key, document in bucket.documents.in_vbucket(request.vbucket)
        if key.startswith(prefix) and wanted.holds(key[len(prefix) :])
    ]
    if not found:
        session.refuse(request, Status.KEY_ENOENT, "nothing is in the range")
        return
    now = time.monotonic()
    for identifier, scan in list(bucket.range_scans.items()):
        if now - scan.begun_at_seconds > _SCAN_LIFETIME_SECONDS:
            del bucket.range_scans[identifier]
    identifier = secrets.token_bytes(_ID_BYTES)
    found.sort(key=lambda item: item[0])
    bucket.range_scans[identifier] = RangeScan(request.vbucket, wanted.key_only, found, now)
    session.reply(request, value=identifier)


def resume(session: Session, request: Request) -> None:
    """Send what comes next, in batches; the last answer tells whether there is more."""
    bucket = _open_bucket(session, request)
    if bucket is None:
        return
    if len(request.extras) != _CONTINUE.size:
        session.refuse(request, Status.EINVAL, f"needs {_CONTINUE.size} bytes of extras")
        return
    identifier, most_items, _, most_bytes = _CONTINUE.unpack(request.extras)
    scan = bucket.range_scans.get(identifier)
    if scan is None or scan.vbucket != request.vbucket:
        session.refuse(request, Status.KEY_ENOENT, "no such range scan")
        return
    extras = struct.pack(">I", 0 if scan.key_only else 1)
    batch, sent_items, sent_bytes = bytearray(), 0, 0
    while scan.remaining and not (most_items and sent_items >= most_items) and not 0 < most_bytes <= sent_bytes:
        if len(batch) >= _BATCH_BYTES:
            session.reply(request, extras=extras, value=bytes(batch))
            batch.clear()
        item = _item(*scan.remaining.pop(0), key_only=scan.key_only)
        batch += item
        sent_items, sent_bytes = sent_items + 1, sent_bytes + len(item)
    status = Status.RANGE_SCAN_MORE
    if not scan.remaining:
        del bucket.range_scans[identifier]
        status = Status.RANGE_SCAN_COMPLETE
    session.reply(request, status, extras=extras, value=bytes(batch))


def cancel(session: Session, request: Request) -> None:
    """Forget a scan."""
    bucket = _open_bucket(session, request)
    if bucket is None:
        return
    if bucket.range_scans.pop(request.extras, None) is None:
        session.refuse(request, Status.KEY_ENOENT, "no such range scan")
    else:
        session.reply(request)


def _open_bucket(session: Session, request: Request) -> Bucket | None:
    bucket = session.bucket
    if bucket is None:
        session.refuse(request, Status.NO_BUCKET, "no bucket is open")
    elif bucket.settings.bucket_type == "ephemeral":
        session.refuse(request, Status.NOT_SUPPORTED)
    elif not session.holds_vbucket(request.vbucket):
        session.refuse_foreign_vbucket(request)
    else:
        return bucket
    return None


def _may_scan(session: Session, request: Request, bucket: Bucket, collection_id: int) -> bool:
    found = bucket.manifest_on(session.node.index).by_id.get(collection_id)
    held = session.privileges(*found) if found else frozenset()
    if found is None or session.hides_collection(held):
        session.refuse_unknown_collection(request)
    elif "RangeScan" not in held:
        session.refuse(request, Status.EACCESS, "Authorization failure: needs RangeScan")
    else:
        return True
    return False


def _parse(body: Any) -> _Wanted:
    bounds = body["range"]
    start, end = bounds.get("start"), bounds.get("end")
    return _Wanted(
        int(body.get("collection", "0"), 16),
        bool(body.get("key_only", False)),
        base64.b64decode(bounds["excl_start"] if start is None else start, validate=True),
        base64.b64decode(bounds["excl_end"] if end is None else end, validate=True),
        start is not None,
        end is not None,
    )


def _item(key: bytes, document: StoredDocument, *, key_only: bool) -> bytes:
    named = encode_leb128(len(key)) + key
    if key_only:
        return named
    meta = _META.pack(document.flags, document.expiry, document.seqno, document.cas, document.datatype)
    return meta + named + encode_leb128(len(document.value)) + bytes(document.value)


SCAN_COMMANDS: dict[int, Callable[[Session, Request], None]] = {
    Opcode.RANGE_SCAN_CREATE: create,
    Opcode.RANGE_SCAN_CONTINUE: resume,
    Opcode.RANGE_SCAN_CANCEL: cancel,
}
