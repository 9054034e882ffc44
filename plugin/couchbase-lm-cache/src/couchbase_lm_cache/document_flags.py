"""Flags that tell a document's format, as every Couchbase SDK writes and reads them.

Bits 24 to 27 hold the common format (2: JSON, 3: bytes); what older SDKs kept in the low bits is written
along, for readers that look only there. Pure.
"""

from __future__ import annotations

BINARY_FLAGS = 0x03000002
JSON_FLAGS = 0x02000000


def is_json(flags: int) -> bool:
    """Say whether flags name JSON; documents of other writers may carry any legacy bits."""
    return (flags >> 24) & 0xF == JSON_FLAGS >> 24
