"""Calling a function with many values: none is lost."""

import traceback

import pytest

from beam_spark_runner.core.user_calls import map_all


def test_each_value_has_its_result() -> None:
    assert map_all(str, [1, 2]) == ["1", "2"]
    assert map_all(str, []) == []


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_function_that_stops_the_iteration(place: int) -> None:
    def stop(value: int) -> int:
        if value == place:
            raise StopIteration("its words")
        return value

    with pytest.raises(RuntimeError, match="its words") as raised:
        map_all(stop, [0, 1, 2])
    cause = raised.value.__cause__
    assert cause is not None
    assert "stop" in [frame.name for frame in traceback.extract_tb(cause.__traceback__)]


def test_a_function_that_stops_the_iteration_once() -> None:
    calls = []

    def stop(value: int) -> int:
        calls.append(value)
        if len(calls) == 2:
            raise StopIteration
        return value

    with pytest.raises(RuntimeError, match="StopIteration"):
        map_all(stop, [0, 1, 2])


def test_what_else_is_raised_passes() -> None:
    with pytest.raises(ZeroDivisionError):
        map_all(lambda value: 1 // value, [1, 0])
