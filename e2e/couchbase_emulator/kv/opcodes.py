"""Numbers of the memcached binary protocol used by Couchbase clients (kv_engine `docs/BinaryProtocol.md`)."""

from enum import IntEnum


class Magic(IntEnum):
    """First byte of a frame."""

    REQUEST = 0x80
    ALT_REQUEST = 0x08  # key length shrinks to one byte, the other holds the length of framing extras
    RESPONSE = 0x81


class Opcode(IntEnum):
    """Commands the emulator answers; every other one gets UNKNOWN_COMMAND."""

    GET = 0x00
    SET = 0x01
    ADD = 0x02
    REPLACE = 0x03
    DELETE = 0x04
    GETQ = 0x09
    NOOP = 0x0A
    VERSION = 0x0B
    GETK = 0x0C
    GETKQ = 0x0D
    STAT = 0x10
    SETQ = 0x11
    ADDQ = 0x12
    REPLACEQ = 0x13
    DELETEQ = 0x14
    TOUCH = 0x1C
    GAT = 0x1D
    GATQ = 0x1E
    HELLO = 0x1F
    SASL_LIST_MECHS = 0x20
    SASL_AUTH = 0x21
    SASL_STEP = 0x22
    SELECT_BUCKET = 0x89
    GET_META = 0xA0
    GETQ_META = 0xA1
    GET_CLUSTER_CONFIG = 0xB5
    COLLECTIONS_GET_MANIFEST = 0xBA
    COLLECTIONS_GET_ID = 0xBB
    COLLECTIONS_GET_SCOPE_ID = 0xBC
    SUBDOC_GET = 0xC5
    SUBDOC_EXISTS = 0xC6
    SUBDOC_MULTI_LOOKUP = 0xD0
    SUBDOC_GET_COUNT = 0xD2
    RANGE_SCAN_CREATE = 0xDA
    RANGE_SCAN_CONTINUE = 0xDB
    RANGE_SCAN_CANCEL = 0xDC
    GET_ERROR_MAP = 0xFE


# Quiet forms answer only what is worth an answer: a get only a hit, a mutation only an error.
QUIET_OF: dict[int, int] = {
    Opcode.GETQ: Opcode.GET,
    Opcode.GETKQ: Opcode.GETK,
    Opcode.GATQ: Opcode.GAT,
    Opcode.GETQ_META: Opcode.GET_META,
    Opcode.SETQ: Opcode.SET,
    Opcode.ADDQ: Opcode.ADD,
    Opcode.REPLACEQ: Opcode.REPLACE,
    Opcode.DELETEQ: Opcode.DELETE,
}


class Status(IntEnum):
    """Response status."""

    SUCCESS = 0x00
    KEY_ENOENT = 0x01
    KEY_EEXISTS = 0x02
    E2BIG = 0x03
    EINVAL = 0x04
    NOT_STORED = 0x05
    NOT_MY_VBUCKET = 0x07
    NO_BUCKET = 0x08
    AUTH_ERROR = 0x20
    AUTH_CONTINUE = 0x21
    EACCESS = 0x24
    UNKNOWN_COMMAND = 0x81
    ENOMEM = 0x82
    NOT_SUPPORTED = 0x83
    ETMPFAIL = 0x86
    UNKNOWN_COLLECTION = 0x88
    UNKNOWN_SCOPE = 0x8C
    DURABILITY_IMPOSSIBLE = 0xA1
    RANGE_SCAN_MORE = 0xA6
    RANGE_SCAN_COMPLETE = 0xA7
    SUBDOC_PATH_ENOENT = 0xC0
    SUBDOC_PATH_MISMATCH = 0xC1
    SUBDOC_PATH_EINVAL = 0xC2
    SUBDOC_DOC_NOT_JSON = 0xC6
    SUBDOC_INVALID_COMBO = 0xCB
    SUBDOC_MULTI_PATH_FAILURE = 0xCC
    SUBDOC_XATTR_UNKNOWN_VATTR = 0xD1


class Feature(IntEnum):
    """Features of HELLO that the emulator grants when asked. Snappy and change notifications are never granted."""

    TCP_NODELAY = 0x03
    MUTATION_SEQNO = 0x04
    XATTR = 0x06
    XERROR = 0x07
    SELECT_BUCKET = 0x08
    JSON = 0x0B
    UNORDERED_EXECUTION = 0x0E
    ALT_REQUEST_SUPPORT = 0x10
    SYNC_REPLICATION = 0x11
    COLLECTIONS = 0x12
    PRESERVE_TTL = 0x14


DATATYPE_RAW = 0x00
DATATYPE_JSON = 0x01
DATATYPE_SNAPPY = 0x02
