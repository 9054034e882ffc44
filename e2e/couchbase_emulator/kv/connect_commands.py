"""Commands around a connection: HELLO, login, bucket selection, configuration, collection identifiers."""

import json
import struct
from collections.abc import Callable

from e2e.couchbase_emulator.kv.error_map import ERROR_MAP
from e2e.couchbase_emulator.kv.frames import Request
from e2e.couchbase_emulator.kv.opcodes import DATATYPE_JSON, Feature, Opcode, Status
from e2e.couchbase_emulator.kv.scram import HASHES, MECHANISMS, SaslError, ScramExchange, parse_plain
from e2e.couchbase_emulator.kv.session import Session
from e2e.couchbase_emulator.model.manifest import DEFAULT

_GRANTED = frozenset(Feature)


def hello(session: Session, request: Request) -> None:
    """Agree on features: those asked for that the emulator has."""
    if session.cluster.faults.take("unknown_hellos"):
        session.refuse(request, Status.UNKNOWN_COMMAND)
        return
    value = bytes(request.value)
    if len(value) % 2:
        session.refuse(request, Status.EINVAL, "feature list has an odd length")
        return
    asked = struct.unpack(f">{len(value) // 2}H", value)
    granted = [
        feature for feature in dict.fromkeys(asked) if feature in _GRANTED - session.cluster.options.refused_features
    ]
    session.features = frozenset(granted)
    session.agent = request.key.decode(errors="replace")
    session.reply(request, value=struct.pack(f">{len(granted)}H", *granted))


def list_mechanisms(session: Session, request: Request) -> None:
    """Login mechanisms."""
    session.reply(request, value=" ".join(_mechanisms(session)).encode())


def _mechanisms(session: Session) -> tuple[str, ...]:
    offered = session.cluster.options.sasl_mechanisms
    return MECHANISMS if offered is None else offered


def authenticate(session: Session, request: Request) -> None:
    """Begin a login."""
    session.username, session.bucket, session.scram = None, None, None
    mechanism = request.key.decode(errors="replace")
    message = bytes(request.value)
    try:
        if mechanism not in _mechanisms(session):
            session.refuse(request, Status.AUTH_ERROR, "unknown mechanism")
        elif mechanism == "PLAIN":
            _finish_plain(session, request, message)
        elif mechanism in HASHES:
            _begin_scram(session, request, mechanism, message)
        else:
            session.refuse(request, Status.AUTH_ERROR, "unknown mechanism")
    except SaslError as error:
        session.refuse(request, Status.AUTH_ERROR, str(error))


def continue_authentication(session: Session, request: Request) -> None:
    """Second step of SCRAM."""
    exchange, session.scram = session.scram, None
    if exchange is None:
        session.refuse(request, Status.AUTH_ERROR, "no login is under way")
        return
    try:
        verifier = exchange.finish(bytes(request.value))
    except SaslError as error:
        session.refuse(request, Status.AUTH_ERROR, str(error))
        return
    _log_in(session, exchange.username)
    session.reply(request, value=verifier)


def _finish_plain(session: Session, request: Request, message: bytes) -> None:
    username, password = parse_plain(message)
    credential = session.cluster.credential_on(session.node, username)
    if credential is None or not credential.matches(password) or session.cluster.faults.take("auth_failures"):
        raise SaslError("unknown user or wrong password")
    _log_in(session, username)
    session.reply(request, value=b"Authenticated")


def _begin_scram(session: Session, request: Request, mechanism: str, message: bytes) -> None:
    exchange = ScramExchange(mechanism)
    credential = session.cluster.credential_on(session.node, exchange.read_client_first(message))
    if credential is None or session.cluster.faults.take("auth_failures"):
        raise SaslError("unknown user or wrong password")
    session.scram = exchange
    session.reply(request, Status.AUTH_CONTINUE, value=exchange.server_first(credential))


def _log_in(session: Session, username: str) -> None:
    session.username = username
    session.cluster.counters.kv_logins += 1


def select_bucket(session: Session, request: Request) -> None:
    """Open a bucket; without rights on it the answer is the same whether it exists or not."""
    name = request.key.decode(errors="replace")
    bucket = session.cluster.buckets.get(name)
    usable = bucket is not None and session.cluster.is_ready(bucket)
    if not session.may_see_bucket(name) and not session.is_administrator():
        session.refuse(request, Status.EACCESS, "no access to the bucket")
    elif not usable:
        session.refuse(request, Status.KEY_ENOENT, "no such bucket on this node")
    else:
        session.bucket = bucket
        session.reply(request)


def cluster_config(session: Session, request: Request) -> None:
    """Configuration of the open bucket, or of the cluster."""
    session.reply(request, value=session.config(), datatype=DATATYPE_JSON)


def error_map(session: Session, request: Request) -> None:
    """Meaning of the status codes."""
    session.reply(request, value=ERROR_MAP, datatype=DATATYPE_JSON)


def noop(session: Session, request: Request) -> None:
    """Answer."""
    session.reply(request)


def version(session: Session, request: Request) -> None:
    """Version of the server."""
    session.reply(request, value=session.cluster.options.version.encode())


def collections_manifest(session: Session, request: Request) -> None:
    """Manifest with the collections that the user may see."""
    if session.bucket is None:
        session.refuse(request, Status.NO_BUCKET, "no bucket is open")
        return
    visible = {
        collection.uid
        for scope, collection in session.bucket.manifest_on(session.node.index).by_id.values()
        if session.privileges(scope, collection)
    }
    manifest = session.bucket.manifest_on(session.node.index).as_json()
    for scope in manifest["scopes"]:
        scope["collections"] = [item for item in scope["collections"] if int(item["uid"], 16) in visible]
    manifest["scopes"] = [scope for scope in manifest["scopes"] if scope["collections"]]
    session.reply(request, value=json.dumps(manifest).encode(), datatype=DATATYPE_JSON)


def collection_id(session: Session, request: Request) -> None:
    """Identifier of `scope.collection`; what the user has no right on does not exist for them."""
    if session.bucket is None:
        session.refuse(request, Status.NO_BUCKET, "no bucket is open")
        return
    path = bytes(request.value or request.key).decode(errors="replace")
    scope_name, separator, collection_name = path.partition(".")
    if not separator:
        session.refuse(request, Status.EINVAL, "path must be scope.collection")
        return
    manifest = session.bucket.manifest_on(session.node.index)
    scope = manifest.scopes.get(scope_name or DEFAULT)
    if scope is None:
        session.refuse_unknown_collection(request, Status.UNKNOWN_SCOPE)
        return
    collection = scope.collections.get(collection_name or DEFAULT)
    held = session.privileges(scope, collection) if collection else frozenset()
    if collection is None or session.hides_collection(held):
        session.refuse_unknown_collection(request)
        return
    if not held:
        session.refuse(request, Status.EACCESS, "Authorization failure")
        return
    session.reply(request, extras=struct.pack(">QI", manifest.uid, collection.uid))


def scope_id(session: Session, request: Request) -> None:
    """Identifier of a scope."""
    if session.bucket is None:
        session.refuse(request, Status.NO_BUCKET, "no bucket is open")
        return
    path = bytes(request.value or request.key).decode(errors="replace")
    manifest = session.bucket.manifest_on(session.node.index)
    scope = manifest.scopes.get(path.partition(".")[0] or DEFAULT)
    if scope is None or not any(session.privileges(scope, item) for item in scope.collections.values()):
        session.refuse_unknown_collection(request, Status.UNKNOWN_SCOPE)
        return
    session.reply(request, extras=struct.pack(">QI", manifest.uid, scope.uid))


Command = Callable[[Session, Request], None]

# What a client may send before it is logged in.
ANONYMOUS_COMMANDS: dict[int, Command] = {
    Opcode.HELLO: hello,
    Opcode.SASL_LIST_MECHS: list_mechanisms,
    Opcode.SASL_AUTH: authenticate,
    Opcode.SASL_STEP: continue_authentication,
    Opcode.GET_ERROR_MAP: error_map,
    Opcode.VERSION: version,
    Opcode.NOOP: noop,
}
CONNECT_COMMANDS: dict[int, Command] = ANONYMOUS_COMMANDS | {
    Opcode.SELECT_BUCKET: select_bucket,
    Opcode.GET_CLUSTER_CONFIG: cluster_config,
    Opcode.COLLECTIONS_GET_MANIFEST: collections_manifest,
    Opcode.COLLECTIONS_GET_ID: collection_id,
    Opcode.COLLECTIONS_GET_SCOPE_ID: scope_id,
}
