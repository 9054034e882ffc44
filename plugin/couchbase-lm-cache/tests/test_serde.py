"""LMCache's serialisers on top of the adapter: chunks that are quantised or encrypted before they are stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Place
from lmcache_parts import keys
from storage_managers import OBJECT_BYTES, manager


@pytest.fixture
def encrypted(tmp_path: Path) -> dict[str, Any]:
    key_file = tmp_path / "key"
    key_file.write_bytes(bytes(range(32)))
    return {"type": "aesgcm", "master_key_path": str(key_file)}


def stored_bytes(place: Place) -> set[int]:
    """What the manifests say about the sizes of objects."""
    manifests = [one.value for name, one in place.documents().items() if "::shard::" not in name]
    return {int(json.loads(manifest)["bytes"]) for manifest in manifests}


def test_fp8_halves_what_is_stored_and_another_server_reads_it(place: Place) -> None:
    with manager(place.params, serde={"type": "fp8"}) as one:
        written = one.put(keys(4))
        one.await_stored(4)
        assert one.adapter.get_usage().total_bytes_used == sum(stored_bytes(place)) * 4
    assert max(stored_bytes(place)) < 0.6 * OBJECT_BYTES
    with manager(place.params, serde={"type": "fp8"}) as other:
        assert other.answer(other.ask(keys(5))).l2_hit_count == 4
        for before, after in zip(written, other.read(keys(4)), strict=True):
            exact, rounded = (torch.frombuffer(bytearray(data), dtype=torch.bfloat16) for data in (before, after))
            # Four bits of significand: neighbours are an eighth apart, so rounding errs by a sixteenth.
            assert torch.allclose(exact, rounded, rtol=0.07, atol=0.01)


def test_encrypted_chunks_are_read_with_the_key_alone(place: Place, encrypted: dict[str, Any], tmp_path: Path) -> None:
    with manager(place.params, serde=encrypted) as one:
        written = one.put(keys(4))
        one.await_stored(4)
    assert all(written[0][:64] not in bytes(document.value) for document in place.documents().values())
    with manager(place.params, serde=encrypted) as other:
        assert other.answer(other.ask(keys(4))).l2_hit_count == 4
        assert other.read(keys(4)) == written
    wrong = tmp_path / "wrong"
    wrong.write_bytes(bytes(range(1, 33)))
    with manager(place.params, serde={"type": "aesgcm", "master_key_path": str(wrong)}) as stranger:
        assert stranger.answer(stranger.ask(keys(4))).l2_hit_count == 0


def test_a_plain_server_takes_no_encrypted_chunk(place: Place, encrypted: dict[str, Any]) -> None:
    with manager(place.params, serde=encrypted) as one:
        one.put(keys(2))
        one.await_stored(2)
    with manager(place.params) as plain:
        assert plain.answer(plain.ask(keys(2))).l2_hit_count == 0
