"""Loops over lists of values: the same results as one by one, in pieces of their origins."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.internal import pickler
from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindow,
    GlobalWindows,
    IntervalWindow,
    Sessions,
    SlidingWindows,
    WindowFn,
)
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.harness.steps import (
    AssigningWindows,
    Calling,
    Filtering,
    Mapped,
    OnTrial,
    step_for,
)


def origin(number: int) -> WindowedValue:
    return WindowedValue(None, number, (GlobalWindow(),))


def all_of(step: Any, values: list[Any]) -> list[tuple[Any, int]]:
    """Results with the timestamps of their origins, which are the positions of the values."""
    found: list[tuple[Any, int]] = []
    for results, origins in step.pieces(values, [origin(place) for place in range(len(values))]):
        assert results
        found += [
            (result, int(each.timestamp)) for result, each in zip(results, origins, strict=True)
        ]
    return found


class Repeat(beam.DoFn):  # type: ignore[misc]
    """Says a number as often as it is large, in one of three ways."""

    def process(self, number: int) -> Any:
        if number % 3 == 0:
            return [number] * number
        return (each for each in [number] * number) if number % 3 == 1 else (number,) * number


class Never(beam.DoFn):  # type: ignore[misc]
    def process(self, number: int) -> None:
        return None


SHAPES: list[tuple[Any, type, Callable[[int], list[Any]]]] = [
    (beam.Map(lambda n: n + 1), Mapped, lambda n: [n + 1]),
    (beam.Map(lambda n: None), Mapped, lambda n: [None]),
    (beam.Map(str), Mapped, lambda n: [str(n)]),
    (beam.Map(lambda n: n).with_output_types(int), Mapped, lambda n: [n]),
    (beam.Filter(lambda n: n % 2), Filtering, lambda n: [n] if n % 2 else []),
    (beam.Filter(bool), Filtering, lambda n: [n] if n else []),
    (beam.FlatMap(range), Calling, lambda n: list(range(n))),
    (beam.FlatMap(lambda n: str(n)), Calling, lambda n: list(str(n))),
    (beam.ParDo(Repeat()), Calling, lambda n: [n] * n),
    (beam.ParDo(Never()), Calling, lambda n: []),
]


@pytest.mark.parametrize(("transform", "kind", "expected"), SHAPES)
@given(values=st.lists(st.integers(0, 50), min_size=1, max_size=40), limit=st.integers(1, 20))
def test_results_and_their_origins(
    transform: Any, kind: type, expected: Callable[[int], list[Any]], values: list[int], limit: int
) -> None:
    fn = pickler.loads(pickler.dumps(transform.fn))  # as a worker gets it
    trial = step_for(fn, "step")
    assert isinstance(trial, OnTrial)
    assert isinstance(trial.then, kind)
    trial.limit = limit
    wanted = [(result, place) for place, n in enumerate(values) for result in expected(n)]
    for step in (trial, trial.then):
        assert all_of(step, values) == wanted


def test_tuples_are_spread_over_the_arguments() -> None:
    for transform in (beam.MapTuple(lambda a, b: a + b), beam.MapTuple(max)):
        fn = pickler.loads(pickler.dumps(transform.fn))
        step = step_for(fn, "step").then  # type: ignore[attr-defined]
        assert isinstance(step, Mapped)
        assert [result for result, _ in all_of(step, [(2, 1), (3, 3)])] in ([3, 6], [2, 3])


def _add(n: int, *more: int, times: int = 1) -> int:
    return (n + sum(more)) * times


@pytest.mark.parametrize(
    ("args", "kwargs"), [((5,), {}), ((5, 6), {}), ((), {"times": 3}), ((5,), {"times": 3})]
)
def test_arguments_that_are_the_same_for_all_elements(
    args: tuple[int, ...], kwargs: dict[str, int]
) -> None:
    sums = [_add(n, *args, **kwargs) for n in range(5)]
    numbers = list(range(5))
    shapes: list[tuple[Any, type, list[Any], list[int]]] = [
        (beam.Map(_add), Mapped, numbers, sums),
        (beam.FlatMap(lambda *n, **by: [_add(*n, **by)]), Calling, numbers, sums),
        (beam.Filter(lambda *n, **by: _add(*n, **by) > sums[2]), Filtering, numbers, [3, 4]),
    ]
    for transform, kind, values, expected in shapes:
        fn = pickler.loads(pickler.dumps(transform.fn))
        trial = step_for(fn, "step", args, kwargs)
        assert isinstance(trial, OnTrial)
        assert isinstance(trial.then, kind)
        for step in (trial, trial.then):
            assert [result for result, _ in all_of(step, values)] == expected


def test_no_more_is_read_ahead_than_the_limit() -> None:
    read = 0

    def endless(_: int) -> Iterator[int]:
        nonlocal read
        while True:
            read += 1
            yield read

    step = step_for(beam.FlatMap(endless).fn, "step")
    step.limit = 10
    pieces = step.pieces([0], [origin(0)])
    for _ in range(100):
        before = read
        results, _origins = next(pieces)
        assert len(results) <= read - before <= 10


class Reuse(beam.DoFn):  # type: ignore[misc]
    """Gives one list out again and again, as Beam forbids."""

    def process(self, number: int) -> Iterator[Any]:
        row: list[int] = []
        for digit in range(3):
            row.append(number)
            row.append(digit)
            yield (number, row)
            row.clear()


def test_changed_results_go_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    step = step_for(Reuse(), "Outer/reuse")
    step.limit = 10
    seen: list[Any] = []
    with caplog.at_level(logging.INFO):
        for results, _ in step.pieces(list(range(50)), [origin(0)] * 50):
            seen += [(number, list(row)) for number, row in results]  # as a coder would
    assert seen == [(n, [n, digit]) for n in range(50) for digit in range(3)]
    (message,) = [each.getMessage() for each in caplog.records]
    assert "Outer/reuse changes values" in message


def test_what_is_constant_is_no_change() -> None:
    constant = ["a"]
    step = step_for(beam.Map(lambda _: constant).fn, "step")
    all_of(step, list(range(100)))
    assert step.is_over()  # type: ignore[attr-defined]


@given(
    fn=st.one_of(
        st.builds(FixedWindows, st.integers(1, 7), st.integers(0, 6)),
        st.builds(SlidingWindows, st.integers(1, 9), st.integers(1, 4), st.integers(0, 3)),
        st.builds(Sessions, st.integers(1, 5)),
        st.just(GlobalWindows()),
    ),
    times=st.lists(st.integers(-20_000_000, 20_000_000), min_size=1),
    copies=st.integers(1, 3),
)
def test_assigned_windows(fn: Any, times: list[int], copies: int) -> None:
    windows = tuple(IntervalWindow(n, n + 1) for n in range(copies))
    origins = [WindowedValue(None, Timestamp(micros=time), windows) for time in times]
    ((values, assigned),) = AssigningWindows(fn).pieces(list(times), origins)
    expected = [time for time in times for _ in windows]
    assert values == expected == [element.value for element in assigned]
    for time, element in zip(expected, assigned, strict=True):
        context = WindowFn.AssignContext(Timestamp(micros=time))
        assert element.timestamp_micros == time
        assert list(element.windows) == list(fn.assign(context))


def test_a_window_fn_that_looks_at_the_element() -> None:
    class ByLength(FixedWindows):  # type: ignore[misc]
        def assign(self, context: WindowFn.AssignContext) -> list[IntervalWindow]:
            return [IntervalWindow(0, len(context.element))]

    step = AssigningWindows(ByLength(10))
    ((_, assigned),) = step.pieces(["a", "abc"], [origin(1), origin(1)])
    assert [int(element.windows[0].end) for element in assigned] == [1, 3]
