"""Connection strings, the ownership mark, the record in status, and claims."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.couchbase import bucket_record, claims, connection_string, ownership
from couchbase_lm_operator.core.couchbase.connection_string import Address
from couchbase_lm_operator.core.couchbase_state import BucketRecord
from couchbase_lm_operator.core.observed import Claim
from tests.provisioning.arm import couchbase_goal


@pytest.mark.parametrize(
    ("text", "kv", "management", "network"),
    [
        ("couchbase://cb", [("cb", 11210)], ["http://cb:8091"], "auto"),
        ("couchbases://cb.data.svc", [("cb.data.svc", 11207)], ["https://cb.data.svc:18091"], "auto"),
        (
            "couchbase://a,b:9999?network=default&x=y",
            [("a", 11210), ("b", 9999)],
            ["http://a:8091", "http://b:8091"],
            "default",
        ),
        ("couchbase://[fd00::1]:5/?network=external", [("fd00::1", 5)], ["http://[fd00::1]:8091"], "external"),
        ("couchbase://a:1,a:2", [("a", 1), ("a", 2)], ["http://a:8091"], "auto"),
    ],
)
def test_connection_strings(text: str, kv: list[tuple[str, int]], management: list[str], network: str) -> None:
    parsed = connection_string.parse(text)
    assert parsed.kv_addresses == tuple(Address(*one) for one in kv)
    assert list(parsed.management_urls) == management
    assert parsed.network == network


@pytest.mark.parametrize("text", ["", "cb", "http://cb", "couchbase://", "couchbase://a b", "couchbase://u:p@h:1/x"])
def test_unusable_connection_strings(text: str) -> None:
    with pytest.raises(connection_string.ConnectionStringError):
        connection_string.parse(text)


@given(owns=st.booleans(), uuid=st.text("0123456789abcdef", min_size=32, max_size=32))
def test_a_mark_is_read_back(uuid: str, *, owns: bool) -> None:
    base = ownership.mark("0123abcd", "team", "demo.v2")
    assert ownership.read(ownership.full_mark(base, uuid, owns_bucket=owns)) == ownership.Ownership(base, uuid, owns)


@given(st.text())
def test_what_people_write_is_no_mark(text: str) -> None:
    assert ownership.read(text) is None
    assert not ownership.is_marker_scope(text)


_FACTS = st.tuples(st.sampled_from(["c1", "c2"]), st.sampled_from(["a", "b"]), st.sampled_from(["a", "b"]))


@given(one=_FACTS, other=_FACTS, uuids=st.tuples(st.sampled_from(["1", "2"]), st.sampled_from(["1", "2"])))
def test_a_marker_scope_belongs_to_one_resource_and_one_bucket(
    one: tuple[str, str, str], other: tuple[str, str, str], uuids: tuple[str, str]
) -> None:
    first = ownership.marker_scope(ownership.mark(*one), uuids[0])
    second = ownership.marker_scope(ownership.mark(*other), uuids[1])
    assert (first == second) is ((one, uuids[0]) == (other, uuids[1]))
    assert ownership.is_marker_scope(first)


@pytest.mark.parametrize(
    "namespace", ["lmcb-owner-team", "my-lmcb-owner-0123456789abcdef", "lmcb-owner-0123456789abcdeg"]
)
def test_a_namespace_may_be_named_almost_like_a_marker(namespace: str) -> None:
    assert not ownership.is_marker_scope(namespace)


@given(
    st.builds(
        BucketRecord,
        name=st.text(min_size=1),
        cluster_uuid=st.text(min_size=1),
        requested_quota_bytes=st.none() | st.integers(1, 1 << 50),
        removed_by_others_count=st.integers(0, 9),
        refused_generation=st.integers(0, 1 << 40),
    )
)
def test_a_record_survives_status(record: BucketRecord) -> None:
    status = json.loads(json.dumps({"bucket": bucket_record.to_status(record)}))
    assert bucket_record.from_status(status) == record


@pytest.mark.parametrize("status", [{}, {"bucket": None}, {"bucket": {"name": "b"}}, {"bucket": {"clusterUUID": "c"}}])
def test_a_status_without_record(status: dict[str, object]) -> None:
    assert bucket_record.from_status(status) is None


def claim(name: str, created: str, *, user: str = "", bucket: str = "lmcache-demo", owns: bool = True) -> Claim:
    return Claim("team", name, f"uid-{name}", created, bucket, user or f"user-{name}", owns)


def holder(of: Claim) -> Claim:
    return replace(of, holds_bucket=True, holds_user=True)


@pytest.mark.parametrize(
    ("own", "other", "is_rival"),
    [
        (claim("b", "2026-02"), claim("a", "2026-01"), True),
        (claim("a", "2026-01"), claim("b", "2026-02"), False),  # the older wins
        (claim("b", "2026-01"), claim("a", "2026-01"), True),  # the UID decides
        (claim("b", "2026-02"), claim("a", "2026-01", bucket="other"), False),
        (claim("b", "2026-02"), claim("a", "2026-01", owns=False), False),  # both may use it
        (claim("b", "2026-02", owns=False), claim("a", "2026-01"), False),
        (claim("b", "2026-02", user="u", bucket="x"), claim("a", "2026-01", user="u"), True),
        (claim("a", "2026-01"), claim("a", "2026-01"), False),  # itself
        # who has it keeps it: a second of the same second, or a restored older one, does not disturb who serves
        (holder(claim("b", "2026-01")), claim("a", "2026-01"), False),
        (holder(claim("b", "2026-02", user="u", bucket="x")), claim("a", "2026-01", user="u"), False),
        (claim("b", "2026-01"), holder(claim("a", "2026-02")), True),
        (claim("b", "2026-01", user="u", bucket="x"), holder(claim("a", "2026-02", user="u")), True),
        (holder(claim("b", "2026-02")), holder(claim("a", "2026-01")), True),
    ],
)
def test_claims(own: Claim, other: Claim, *, is_rival: bool) -> None:
    refusal = claims.rival(couchbase_goal("couchbase://cb", ()), own, [own, other])
    assert (refusal is not None) is is_rival
    if refusal is not None:
        assert refusal.reason is Reason.CLAIMED_BY_OTHER
        assert "team/a" in refusal.message
