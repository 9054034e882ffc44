"""Whether the cache pays off, as status tells it: predicted, then with the speed that pods really load at. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.plan_warning import PlanWarning
from couchbase_lm_operator.core.sizing.payoff import shown_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from couchbase_lm_operator.core.sizing.payoff import Payoff


def to_record(payoff: Payoff) -> dict[str, Any]:
    """Return what is kept with a pod template; ``recomputeSeconds`` is absent where nobody knows."""
    record: dict[str, Any] = {
        "tokens": payoff.tokens,
        "loadedBytes": payoff.loaded_bytes,
        "loadSeconds": payoff.load_seconds,
    }
    if payoff.prefill_seconds is not None:
        record["recomputeSeconds"] = payoff.prefill_seconds
    return record


def capacity(record: Mapping[str, Any] | None, observed_bytes_per_second: int | None) -> dict[str, Any]:
    """Return the entries of ``status.capacity``; none for contexts that fill no chunk.

    ``record`` is None for a pod template that an older operator recorded. The observed speed takes the place
    of the assumed one once it is known.
    """
    if not record or not record["tokens"]:
        return {}
    load_seconds, recompute_seconds = _load_seconds(record, observed_bytes_per_second), record.get("recomputeSeconds")
    told: dict[str, Any] = {"loadTime": _shown(load_seconds)}
    if recompute_seconds is not None:
        told |= {"recomputeTime": _shown(recompute_seconds), "worthwhile": load_seconds < recompute_seconds}
    return told


def warning(record: Mapping[str, Any] | None, observed_bytes_per_second: int | None) -> PlanWarning | None:
    """Return the warning that loading takes longer than computing, if it does."""
    told = capacity(record, observed_bytes_per_second)
    if record is None or told.get("worthwhile") is not False:
        return None
    how = "is predicted to take" if observed_bytes_per_second is None else "takes, at the speed of real loads,"
    return PlanWarning(
        Reason.NOT_WORTHWHILE,
        f"Loading a context of {record['tokens']} tokens {how} {told['loadTime']}, computing it again some "
        f"{told['recomputeTime']}: the cache helps only where Couchbase is faster, or the engine slower, than that.",
    )


def _load_seconds(record: Mapping[str, Any], observed_bytes_per_second: int | None) -> float:
    if observed_bytes_per_second:
        return float(record["loadedBytes"] / observed_bytes_per_second)
    return float(record["loadSeconds"])


def _shown(seconds: float) -> str:
    # no floats in an API of Kubernetes
    return f"{shown_seconds(seconds):g}s"
