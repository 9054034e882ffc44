"""When a sizing counts as verified, as wrong, and when it is too early to say; and how fast pods load."""

from __future__ import annotations

from typing import Any

import pytest

from couchbase_lm_operator.core.adapter_reading import AdapterReading, StoredObject
from couchbase_lm_operator.core.observed import PodReadings
from couchbase_lm_operator.core.sizing import sizing_verdict
from couchbase_lm_operator.core.sizing.sizing_verdict import Observation, Prediction

MIB = 1 << 20
_LONE = 0x01000100
_PAIR = (0x02000200, 0x02010201)
_PREDICTED = Prediction((3 * MIB,), 1)


def _reading(*objects: tuple[int, int, int], loads: int = 0, size_bytes: int = 0, seconds: float = 0.0) -> Any:
    return AdapterReading(tuple(StoredObject(*each) for each in objects), loads, size_bytes, seconds)


def _readings(*answers: AdapterReading, revision: str = "r1", asked: int | None = None) -> PodReadings:
    return PodReadings(revision, len(answers) if asked is None else asked, answers)


def _seen(readings: PodReadings | None, prediction: Prediction = _PREDICTED, status: Any = None) -> Observation | None:
    return sizing_verdict.observed(status or {}, readings, "r1", prediction)


def _verdict(readings: PodReadings | None, prediction: Prediction = _PREDICTED) -> tuple[str, str]:
    status, reason, _ = sizing_verdict.verdict(_seen(readings, prediction), readings, prediction)
    return status.value, str(reason)


def test_the_predicted_object_verifies() -> None:
    assert _verdict(_readings(_reading((0, _LONE, 3 * MIB)))) == ("True", "SizingVerified")


@pytest.mark.parametrize("size", [3 * MIB - 1, 3 * MIB + 1, 6 * MIB])
def test_another_size_is_told_with_both_numbers(size: int) -> None:
    readings = _readings(_reading((0, _LONE, size)))
    status, reason, message = sizing_verdict.verdict(_seen(readings), readings, _PREDICTED)
    assert (status.value, reason) == ("False", "SizingDiffers")
    assert str(size) in message
    assert str(3 * MIB) in message
    assert "spec.model.override" in message


@pytest.mark.parametrize(
    ("readings", "reason"),
    [
        (None, "NothingStored"),
        (_readings(), "NothingStored"),
        (_readings(_reading()), "NothingStored"),
        (_readings(_reading(), asked=2), "NothingStored"),
        (_readings(asked=2), "MetricsUnreachable"),
        (_readings(_reading((0, _LONE, 3 * MIB)), revision="r0"), "NothingStored"),
    ],
)
def test_it_is_unknown_until_a_pod_of_the_template_tells(readings: PodReadings | None, reason: str) -> None:
    assert _verdict(readings) == ("Unknown", reason)


def test_ranks_are_judged_when_all_of_them_were_seen() -> None:
    predicted = Prediction((4 * MIB,), 2)
    first, second = _reading((0, _PAIR[0], 3 * MIB)), _reading((0, _PAIR[1], 4 * MIB))
    assert _verdict(_readings(first), predicted) == ("Unknown", "NothingStored")
    # pipeline stages differ: the prediction is that of the rank that holds most
    assert _verdict(_readings(first, second), predicted) == ("True", "SizingVerified")


@pytest.mark.parametrize(("predicted", "is_right"), [(1, False), (2, True), (8, False)])
def test_the_number_of_ranks_that_store_counts(predicted: int, is_right: bool) -> None:
    readings = _readings(_reading((0, _PAIR[0], MIB), (0, _PAIR[1], MIB)))
    assert _verdict(readings, Prediction((MIB,), predicted))[0] == str(is_right)


def test_a_group_that_has_not_come_yet_is_waited_for() -> None:
    predicted = Prediction((3 * MIB, MIB), 1)
    full, window = (0, _LONE, 3 * MIB), (1, _LONE, MIB)
    assert _verdict(_readings(_reading(full)), predicted)[0] == "Unknown"
    assert _verdict(_readings(_reading(full, window)), predicted)[0] == "True"
    assert _verdict(_readings(_reading(window, full)), predicted)[0] == "True"


@pytest.mark.parametrize("objects", [[(1, _LONE, MIB)], [(1, _LONE, MIB), (2, _LONE, MIB)]])
def test_a_later_group_says_nothing_before_the_first_has_come(objects: list[tuple[int, int, int]]) -> None:
    assert _verdict(_readings(_reading(*objects)), Prediction((3 * MIB, MIB), 1))[0] == "Unknown"


@pytest.mark.parametrize(
    "objects",
    [
        [(0, _LONE, 4 * MIB)],  # not separated: everything in one group
        [(0, _LONE, 3 * MIB), (1, _LONE, 2 * MIB)],
        [(0, _LONE, 3 * MIB), (1, _LONE, MIB), (2, _LONE, 5)],
    ],
)
def test_other_groups_than_predicted_are_wrong(objects: list[tuple[int, int, int]]) -> None:
    assert _verdict(_readings(_reading(*objects)), Prediction((3 * MIB, MIB), 1))[0] == "False"


def test_what_was_seen_once_stays_for_the_template_alone() -> None:
    seen = _seen(_readings(_reading((0, _LONE, 5))))
    assert seen == Observation("r1", (5,), 1)
    status = {"observation": sizing_verdict.to_status(seen), "workload": {"revision": "r1"}}
    assert _seen(None, status=status) == seen
    assert _seen(_readings(_reading((0, _LONE, 9))), status=status) == seen
    assert sizing_verdict.observed(status, None, "r2", _PREDICTED) is None
    assert sizing_verdict.to_status(None) == {}


def _loads(loads: int, size_bytes: int = 30 * 10**9, seconds: float = 24.0) -> PodReadings:
    half = _reading((0, _LONE, 3 * MIB), loads=loads // 2, size_bytes=size_bytes // 2, seconds=seconds / 2)
    rest = _reading(loads=loads - loads // 2, size_bytes=size_bytes - size_bytes // 2, seconds=seconds / 2)
    return _readings(half, rest)


@pytest.mark.parametrize(
    ("readings", "speed"),
    [
        (_loads(19), None),
        (_loads(20), 1_200_000_000),  # 1.25 GB/s with two digits, ties to even
        (_loads(1000, 123_456, 1.0), 120_000),
        (_loads(20, 0), None),
        (_loads(20, seconds=0.0), None),
        # numbers of a broken pod
        (_loads(20, seconds=1e-300), None),
        (_loads(20, 9 * 10**15, 1e-6), None),
        (_loads(20, 1, 1e9), None),
    ],
)
def test_twenty_loads_of_all_pods_give_a_speed(readings: PodReadings, speed: int | None) -> None:
    seen = _seen(readings)
    assert seen is not None
    assert seen.load_bytes_per_second == speed


def test_a_speed_is_recorded_once() -> None:
    status = {"observation": {"revision": "r1", "objectBytes": [3 * MIB], "ranks": 1, "loadBytesPerSecond": 700}}
    seen = _seen(_loads(20), status=status)
    assert seen is not None
    assert sizing_verdict.to_status(seen) == status["observation"]


@pytest.mark.parametrize(
    ("observation", "is_available", "asks"),
    [
        (None, True, True),
        (None, False, True),
        ({"revision": "r0", "objectBytes": [1], "ranks": 1, "loadBytesPerSecond": 1}, True, True),
        ({"revision": "r1", "objectBytes": [1], "ranks": 1}, True, True),
        ({"revision": "r1", "objectBytes": [1], "ranks": 1}, False, False),
        ({"revision": "r1", "objectBytes": [1], "ranks": 1, "loadBytesPerSecond": 1}, True, False),
    ],
)
def test_pods_are_asked_while_there_is_something_to_learn(observation: Any, is_available: bool, asks: bool) -> None:
    status = {"workload": {"revision": "r1"}, "observation": observation}
    assert sizing_verdict.revision_to_read(status, is_available=is_available) == ("r1" if asks else "")


def test_nothing_is_asked_before_a_template_is_in_effect() -> None:
    assert sizing_verdict.revision_to_read({}, is_available=True) == ""


def test_a_template_of_an_older_operator_has_no_prediction() -> None:
    assert sizing_verdict.prediction({"model": {"objectBytes": 5}}) is None
    assert sizing_verdict.prediction({"prediction": {"objectBytes": [5, 6], "ranks": 4}}) == Prediction((5, 6), 4)
