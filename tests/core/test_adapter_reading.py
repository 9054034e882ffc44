"""What is believed of a pod's metrics: plain numbers within bounds, or nothing at all."""

from __future__ import annotations

import pytest

from couchbase_lm_operator.core.adapter_reading import AdapterReading, ReadingError, StoredObject, parse_reading

_PLACE = 'bucket="b",collection="s.c"'


def _object(value: object, group: object = 0, rank: object = "0x01000100") -> str:
    labels = f'{_PLACE},kv_rank="{rank}",layout="ab",model_name="a \\"b\\" {{}},",object_group="{group}"'
    return f"couchbase_lm_cache_object_bytes{{{labels}}} {value}\n"


def _loads(count: object, seconds: object, size_bytes: object) -> str:
    return (
        f"couchbase_lm_cache_load_seconds_count{{{_PLACE}}} {count}\n"
        f"couchbase_lm_cache_load_seconds_sum{{{_PLACE}}} {seconds}\n"
        f"couchbase_lm_cache_loaded_bytes_total{{{_PLACE}}} {size_bytes}\n"
    )


def test_sizes_and_loads_among_everything_else() -> None:
    others = '# HELP python_info x\npython_info{version="3.12"} 1.0\nbroken{ 1\n'
    text = others + _object("131072.0") + _object("7", 1, "0x02010201") + _loads(3.0, 0.5, "1e9") + _loads(1, 0.25, 9)
    assert parse_reading(text) == AdapterReading(
        (StoredObject(0, 0x01000100, 131072), StoredObject(1, 0x02010201, 7)), 4, 1000000009, 0.75
    )


def test_an_adapter_that_stored_nothing_yet() -> None:
    assert parse_reading(_loads(0.0, 0.0, 0.0)) == AdapterReading()


def test_the_number_of_ranks_is_in_every_rank() -> None:
    assert StoredObject(0, 0x08050401, 1).rank_count == 8


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<html>not metrics</html>",
        'python_info{version="3.12"} 1.0\n',
        _object("NaN"),
        _object("-1"),
        _object("0"),
        _object("1e40"),
        _object("+Inf"),
        _object("much"),
        _object("1", group="x"),
        _object("1", group="-1"),
        _object("1", group="9" * 400),
        _object("1", rank="0x00000100"),
        _object("1", rank="0xffffffffff"),
        _object("1", rank=""),
        "couchbase_lm_cache_object_bytes 1\n",
        "couchbase_lm_cache_object_bytes{ 1\n",
        _loads(-1, 0, 0),
        _loads(0, "nan", 0),
        _object("1") * 5000,
        _object("1", rank="0x01000100" + '",x="' + "y" * 4000),
    ],
)
def test_anything_odd_is_refused_as_a_whole(text: str) -> None:
    with pytest.raises(ReadingError) as refused:
        parse_reading(text)
    assert "much" not in str(refused.value)
