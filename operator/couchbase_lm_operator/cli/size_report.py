"""The answer of ``lmcb size``: fields for programs, a report for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from couchbase_lm_operator.cli.numbers import number_rows, numbers
from couchbase_lm_operator.cli.output import binary_size, table
from couchbase_lm_operator.core.sizing.payoff import shown_seconds

if TYPE_CHECKING:
    from couchbase_lm_operator.core.sizing.estimate import Estimate
    from couchbase_lm_operator.core.sizing.payoff import Payoff, Rates


def fields(found: Estimate) -> dict[str, Any]:
    """Return the answer for programs. Sizes are bytes, times seconds, speeds per second."""
    return {
        "modelType": found.shape.model_type,
        "architecture": found.shape.architecture or found.shape.model_type,
        **numbers(found.sizing),
        "keyPrefixFingerprint": found.fingerprint,
        "objectGroups": [group.kind for group in found.sizing.layout.groups(found.sizing.chunk_size_tokens)],
        "requiredFlags": _required_flags(found),
        "conversation": _conversation(found),
        "warnings": list(found.sizing.warnings),
    }


def report(found: Estimate) -> str:
    """Return the answer for people: what matters first, then every number."""
    talk = found.conversation
    name = f"{found.shape.architecture}, " if found.shape.architecture else ""
    parts = [
        f"{name}model type {found.shape.model_type}, evidence: {found.sizing.evidence}",
        f"A conversation of {talk.context_tokens:,} tokens\n" + table(_conversation_rows(found)),
        "The pods\n" + table(_pod_rows(found)),
        *(f"Warning: {each}" for each in found.sizing.warnings),
        table(
            [
                *number_rows(found.sizing),
                ("keyPrefixFingerprint", found.fingerprint, "of the layout, for key prefixes"),
            ],
            ("NUMBER", "VALUE", "MEANING"),
        ),
    ]
    return "\n\n".join(parts)


def _conversation(found: Estimate) -> dict[str, Any]:
    talk, payoff = found.conversation, found.payoff
    return {
        "tokens": talk.context_tokens,
        "cachedTokens": payoff.tokens,
        "bytes": talk.bytes_per_context,
        "documents": talk.documents_per_context,
        "loadedBytes": payoff.loaded_bytes,
        "prefillFlops": payoff.prefill_flops,
        "loadSeconds": shown_seconds(payoff.load_seconds),
        "prefillSeconds": None if payoff.prefill_seconds is None else shown_seconds(payoff.prefill_seconds),
        "loadBytesPerSecond": int(found.rates.load_bytes_per_second),
        "prefillFlopsPerSecondRank": int(found.rates.prefill_flops_per_second_rank),
        "breakEvenBytesPerSecond": (
            None if payoff.break_even_bytes_per_second is None else int(payoff.break_even_bytes_per_second)
        ),
        "worthwhile": payoff.is_worthwhile,
    }


def _conversation_rows(found: Estimate) -> list[tuple[str, str]]:
    talk, payoff = found.conversation, found.payoff
    documents = talk.documents_per_context
    left = talk.context_tokens - payoff.tokens
    fit = _fit(found)
    return [
        ("  in the bucket", f"{binary_size(talk.bytes_per_context)} in {documents:,} documents"),
        ("  cached", f"{payoff.tokens:,} tokens in {talk.chunks_per_context} chunks; {left} are always computed"),
        ("  fit", f"{fit} such conversations into the bucket's {binary_size(found.sizing.quota_bytes)}"),
        ("  load", f"{shown_seconds(payoff.load_seconds):g} s at {_gigabytes(found.rates.load_bytes_per_second)}"),
        ("  compute", _compute(payoff, found.rates)),
        ("  pays off", _verdict(payoff)),
    ]


def _pod_rows(found: Estimate) -> list[tuple[str, str]]:
    sizing = found.sizing
    rows = [("  chunk", sizing.chunk_reason)]
    flags = _required_flags(found)
    rows += [(f"  {program} flags", " ".join(_flag_words(wanted))) for program, wanted in flags.items() if wanted]
    if not any(flags.values()):
        rows.append(("  flags", "no special ones"))
    rows.append(
        ("  memory", f"{binary_size(sizing.l1_bytes)} for L1, {binary_size(sizing.shared_memory_bytes)} /dev/shm")
    )
    return rows


def _required_flags(found: Estimate) -> dict[str, dict[str, str]]:
    return {program: dict(flags) for program, flags in found.sizing.layout.required_flags.items()}


def _flag_words(flags: dict[str, str]) -> list[str]:
    return [word for flag, value in flags.items() for word in (flag, value) if word]


def _fit(found: Estimate) -> int:
    """Return the conversations that fit into the documents' share of the quota."""
    each = found.conversation.bytes_per_context
    return found.sizing.working_set_bytes // each if each else 0


def _compute(payoff: Payoff, rates: Rates) -> str:
    if payoff.prefill_seconds is None:
        return "not known: config.json does not tell every size of the layers"
    teraflops = rates.prefill_flops_per_second_rank / 1e12
    return f"{shown_seconds(payoff.prefill_seconds):g} s at {teraflops:g} TFLOP/s for each rank"


def _verdict(payoff: Payoff) -> str:
    if payoff.tokens == 0:
        return "no: it is shorter than one chunk and never cached"
    if payoff.is_worthwhile is None or payoff.break_even_bytes_per_second is None:
        return "not known"
    at = _gigabytes(payoff.break_even_bytes_per_second)
    return f"{'yes' if payoff.is_worthwhile else 'no'}; loading is faster above {at}"


def _gigabytes(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e9:.2g} GB/s"
