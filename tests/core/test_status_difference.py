"""The patch that is sent turns the status that was read into the status that is wanted, and no more."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from couchbase_lm_operator.core.status import difference

_LEAVES = st.one_of(st.integers(), st.text(max_size=3), st.booleans(), st.lists(st.integers(), max_size=2))
_STATUS = st.recursive(
    st.dictionaries(st.sampled_from("abc"), _LEAVES, max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), st.one_of(_LEAVES, inner), max_size=3),
    max_leaves=10,
)


def _merge(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge(result.get(key), value)
    return result


@given(_STATUS, _STATUS)
def test_the_patch_leads_to_what_is_wanted(previous: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert _merge(previous, difference(previous, wanted)) == wanted


@given(_STATUS)
def test_equal_statuses_need_no_patch(status: dict[str, Any]) -> None:
    assert difference(status, status) == {}
