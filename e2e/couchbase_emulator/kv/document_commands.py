"""Commands on documents: get, set, add, replace, delete, touch, get-and-touch, metadata."""

import struct
from collections.abc import Callable
from typing import NamedTuple

from e2e.couchbase_emulator.kv.frames import (
    DURABILITY_FRAME_ID,
    PRESERVE_EXPIRY_FRAME_ID,
    FrameError,
    Request,
    decode_leb128,
    encode_leb128,
    framing_ids,
)
from e2e.couchbase_emulator.kv.opcodes import DATATYPE_JSON, DATATYPE_SNAPPY, QUIET_OF, Feature, Opcode, Status
from e2e.couchbase_emulator.kv.session import Session
from e2e.couchbase_emulator.model.bucket import Bucket
from e2e.couchbase_emulator.model.documents import Room, StoredDocument
from e2e.couchbase_emulator.model.manifest import Collection

MAX_VALUE_BYTES = 20 * 1024 * 1024
# A key in a named collection may be 246 bytes long: room stays for the longest collection prefix (kv_engine
# `MaxCollectionsLogicalKeyLen`); in the default collection it is 250.
MAX_DEFAULT_KEY_BYTES = 250
MAX_COLLECTION_KEY_BYTES = 246


class Place(NamedTuple):
    """Where a document lives; `wire_key` has the collection prefix."""

    bucket: Bucket
    collection: Collection
    vbucket: int
    wire_key: bytes


def locate(session: Session, request: Request, *privileges: str) -> Place | None:
    """Resolve bucket, vBucket and collection and check the rights; None when the refusal was sent."""
    bucket = session.bucket
    if bucket is None:
        session.refuse(request, Status.NO_BUCKET, "no bucket is open")
        return None
    try:
        collection_id, prefix_bytes = _split_key(session, request.key)
    except FrameError as error:
        session.refuse(request, Status.EINVAL, str(error))
        return None
    owners = bucket.documents.owners
    if (
        request.vbucket >= len(owners)
        or owners[request.vbucket] != session.node.index
        or session.cluster.faults.take("not_my_vbucket")
    ):
        session.refuse_foreign_vbucket(request)
        return None
    found = bucket.manifest_on(session.node.index).by_id.get(collection_id)
    held = session.privileges(*found) if found else frozenset()
    if found is None or session.hides_collection(held):
        session.refuse_unknown_collection(request)
        return None
    if not held.issuperset(privileges):
        session.refuse(request, Status.EACCESS, f"Authorization failure: needs {' and '.join(privileges)}")
        return None
    wire_key = request.key if prefix_bytes else encode_leb128(0) + request.key
    return Place(bucket, found[1], request.vbucket, wire_key)


def _split_key(session: Session, key: bytes) -> tuple[int, int]:
    """Collection identifier and the length of its prefix; raises FrameError for a key that no document can have."""
    collection_id, prefix_bytes = decode_leb128(key) if Feature.COLLECTIONS in session.features else (0, 0)
    longest = MAX_COLLECTION_KEY_BYTES if collection_id else MAX_DEFAULT_KEY_BYTES
    if len(key) == prefix_bytes:
        raise FrameError("Key must not be empty")
    if len(key) - prefix_bytes > longest:
        raise FrameError(f"Logical key exceeds {longest}")
    return collection_id, prefix_bytes


def read_document(session: Session, request: Request) -> StoredDocument | None:
    """Return the document that a request reads, or None when the request was refused or answered with a miss."""
    place = locate(session, request, "Read")
    if place is None:
        return None
    return _find(session, request, place)


def _find(session: Session, request: Request, place: Place) -> StoredDocument | None:
    session.cluster.counters.kv_reads += 1
    refusal = _struck(session, "tmpfail_reads", "out_of_memory_reads")
    if refusal is not None:
        session.refuse(request, refusal)
        return None
    document = place.bucket.documents.get(place.vbucket, place.wire_key)
    if document is None:
        session.reply(request, Status.KEY_ENOENT)
    return document


def _struck(session: Session, temporary: str, out_of_memory: str) -> Status | None:
    """Status of the memory fault that strikes now."""
    if session.cluster.faults.take(temporary):
        return Status.ETMPFAIL
    return Status.ENOMEM if session.cluster.faults.take(out_of_memory) else None


def get(session: Session, request: Request) -> None:
    """Read a document."""
    if request.extras or len(request.value):
        session.refuse(request, Status.EINVAL, "a read has neither extras nor a value")
        return
    document = read_document(session, request)
    if document is None:
        return
    with_key = QUIET_OF.get(request.opcode, request.opcode) == Opcode.GETK
    _reply_document(session, request, document, key=request.key if with_key else b"")


def get_and_touch(session: Session, request: Request) -> None:
    """Read a document and give it a new expiry."""
    if len(request.extras) != 4:
        session.refuse(request, Status.EINVAL, "needs 4 bytes of extras")
        return
    place = locate(session, request, "Read", "Upsert")
    if place is None:
        return
    document = _find(session, request, place)
    if document is None:
        return
    _touch(session, place, document, request.extras)
    _reply_document(session, request, document)


def touch(session: Session, request: Request) -> None:
    """Give a document a new expiry."""
    if len(request.extras) != 4:
        session.refuse(request, Status.EINVAL, "needs 4 bytes of extras")
        return
    place = locate(session, request, "Upsert")
    if place is None:
        return
    document = place.bucket.documents.get(place.vbucket, place.wire_key)
    if document is None:
        session.reply(request, Status.KEY_ENOENT)
        return
    _touch(session, place, document, request.extras)
    session.reply(request, cas=document.cas)


def store(session: Session, request: Request) -> None:
    """Write a document: set, add or replace."""
    opcode = QUIET_OF.get(request.opcode, request.opcode)
    try:
        framing = _check_store(session, request)
    except FrameError as error:
        session.refuse(request, Status.EINVAL, str(error))
        return
    place = locate(session, request, "Insert" if opcode == Opcode.ADD else "Upsert")
    if place is None:
        return
    documents = place.bucket.documents
    previous = documents.get(place.vbucket, place.wire_key)
    refusal = _precondition(opcode, request.cas, previous) or _refusal(session, request, place, framing)
    if refusal is not None:
        session.refuse(request, refusal)
        return
    flags, wire_expiry = struct.unpack(">II", request.extras)
    if PRESERVE_EXPIRY_FRAME_ID in framing and previous is not None:
        expiry = previous.expiry
    else:
        expiry = session.cluster.clock.absolute_expiry(wire_expiry, _max_ttl_seconds(place))
    document = documents.put(
        place.vbucket, place.wire_key, request.value, flags=flags, expiry=expiry, datatype=request.datatype
    )
    _reply_mutation(session, request, place, cas=document.cas, seqno=document.seqno)


def delete(session: Session, request: Request) -> None:
    """Remove a document."""
    place = locate(session, request, "Delete")
    if place is None:
        return
    documents = place.bucket.documents
    previous = documents.get(place.vbucket, place.wire_key)
    if previous is None:
        session.reply(request, Status.KEY_ENOENT)
    elif request.cas and request.cas != previous.cas:
        session.refuse(request, Status.KEY_EEXISTS, "CAS mismatch")
    elif (refusal := _struck(session, "tmpfail", "out_of_memory")) is not None:
        session.refuse(request, refusal)
    else:
        documents.remove(place.vbucket, place.wire_key)
        _reply_mutation(session, request, place, cas=previous.cas + 1, seqno=documents.seqno(place.vbucket))


def get_meta(session: Session, request: Request) -> None:
    """Metadata of a document: what `exists` of the SDK asks for."""
    document = read_document(session, request)
    if document is None:
        return
    extras = struct.pack(">IIIQB", 0, document.flags, document.expiry, document.seqno, document.datatype)
    session.reply(request, extras=extras[: 21 if request.extras[:1] == b"\x02" else 20], cas=document.cas)


def _check_store(session: Session, request: Request) -> set[int]:
    """Kinds of framing extras of a well-formed write; raises FrameError for any other."""
    if len(request.extras) != 8:
        raise FrameError("needs 8 bytes of extras")
    may_be_json = Feature.JSON in session.features
    if request.datatype & DATATYPE_SNAPPY or (request.datatype & DATATYPE_JSON and not may_be_json):
        raise FrameError("datatype was not agreed on")
    return framing_ids(request.framing)


def _refusal(session: Session, request: Request, place: Place, framing: set[int]) -> Status | None:
    """Why a write that is otherwise possible is refused."""
    if len(request.value) > MAX_VALUE_BYTES:
        return Status.E2BIG
    if DURABILITY_FRAME_ID in framing and not _has_replicas(session, place.bucket):
        return Status.DURABILITY_IMPOSSIBLE
    struck = _struck(session, "tmpfail", "out_of_memory")
    if struck is not None:
        return struck
    return _NO_ROOM.get(place.bucket.documents.room_for(place.vbucket, place.wire_key, len(request.value)))


def _precondition(opcode: int, cas: int, previous: StoredDocument | None) -> Status | None:
    if opcode == Opcode.ADD:
        return Status.KEY_EEXISTS if previous is not None else None
    if previous is None:
        return Status.KEY_ENOENT if opcode == Opcode.REPLACE or cas else None
    return Status.KEY_EEXISTS if cas and cas != previous.cas else None


def _has_replicas(session: Session, bucket: Bucket) -> bool:
    return min(bucket.settings.replicas, len(session.cluster.members) - 1) > 0


_NO_ROOM = {Room.TEMPORARILY_FULL: Status.ETMPFAIL, Room.OUT_OF_MEMORY: Status.ENOMEM}


def _max_ttl_seconds(place: Place) -> int:
    own = place.collection.max_ttl_seconds
    return own or place.bucket.settings.max_ttl_seconds


def _touch(session: Session, place: Place, document: StoredDocument, extras: bytes) -> None:
    (wire_expiry,) = struct.unpack(">I", extras)
    expiry = session.cluster.clock.absolute_expiry(wire_expiry, _max_ttl_seconds(place))
    place.bucket.documents.touch(document, expiry)
    session.cluster.counters.kv_writes += 1


def _reply_document(session: Session, request: Request, document: StoredDocument, key: bytes = b"") -> None:
    value = document.value
    if len(value) and session.cluster.faults.take("corrupt_values"):
        changed = bytearray(value)
        changed[len(changed) // 2] ^= 0xFF
        value = changed
    extra_bytes = session.cluster.faults.extra_bytes
    if extra_bytes:
        value = bytes(value) + bytes(extra_bytes) if extra_bytes > 0 else bytes(value[:extra_bytes])
    datatype = document.datatype if Feature.JSON in session.features else 0
    session.reply(
        request,
        extras=struct.pack(">I", document.flags),
        key=key,
        value=value,
        datatype=datatype,
        cas=document.cas,
    )


def _reply_mutation(session: Session, request: Request, place: Place, *, cas: int, seqno: int) -> None:
    session.cluster.counters.kv_writes += 1
    token = b""
    if Feature.MUTATION_SEQNO in session.features:
        token = struct.pack(">QQ", int(place.bucket.uuid[:8], 16) << 10 | place.vbucket, seqno)
    session.reply(request, extras=token, cas=cas)


DOCUMENT_COMMANDS: dict[int, Callable[[Session, Request], None]] = {
    Opcode.GET: get,
    Opcode.GETK: get,
    Opcode.SET: store,
    Opcode.ADD: store,
    Opcode.REPLACE: store,
    Opcode.DELETE: delete,
    Opcode.TOUCH: touch,
    Opcode.GAT: get_and_touch,
    Opcode.GET_META: get_meta,
}
