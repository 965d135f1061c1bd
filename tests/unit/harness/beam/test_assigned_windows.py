"""Windows that a step assigns."""

from typing import Any

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

from beam_spark_runner.harness.beam.step_loops import (
    AssigningWindows,
)
from beam_spark_runner.harness.beam.window_assignment import Assignment
from beam_spark_runner.harness.values.constants import Kind
from tests.unit.harness.beam.step_outputs import Output, Sent, origin


def _assigned(
    step: AssigningWindows, values: list[Any], origins: list[WindowedValue]
) -> tuple[list[Any], list[WindowedValue]]:
    sent: list[tuple[Any, WindowedValue]] = []

    class Keeping(Output):
        def send(self, results: Any, origins: Any, kind: Kind, *, are_values: bool) -> None:
            assert are_values
            sent.extend(zip(results, origins, strict=True))

    step.run(values, origins, Kind.OWN, Keeping())
    at_once, sent = sent, []
    run_one = step.one_by_one(lambda result, origin: sent.append((result, origin)))
    for value, each in zip(values, origins, strict=True):
        run_one(value, each)
    assert [(value, list(each.windows)) for value, each in sent] == [
        (value, list(each.windows)) for value, each in at_once
    ]
    return [value for value, _ in sent], [each for _, each in sent]


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
    values, assigned = _assigned(AssigningWindows(fn), list(times), origins)
    expected = [time for time in times for _ in windows]
    assert values == expected == [element.value for element in assigned]
    for time, element in zip(expected, assigned, strict=True):
        context = WindowFn.AssignContext(Timestamp(micros=time))
        assert element.timestamp_micros == time
        assert list(element.windows) == list(fn.assign(context))
        assert list(Assignment(fn).assign(context)) == list(fn.assign(context))


def test_a_window_fn_that_looks_at_the_element() -> None:
    class ByLength(FixedWindows):  # type: ignore[misc]
        def assign(self, context: WindowFn.AssignContext) -> list[IntervalWindow]:
            return [IntervalWindow(0, len(context.element))]

    step = AssigningWindows(ByLength(10))
    _, assigned = _assigned(step, ["a", "abc"], [origin(1), origin(1)])
    assert [int(element.windows[0].end) for element in assigned] == [1, 3]


class KeepingWindowFn(GlobalWindows):  # type: ignore[misc]
    """Like a user's, which sees elements and may keep them."""


def test_windows_are_assigned_at_once_where_that_is_the_same() -> None:
    def run(fn: WindowFn, values: list[Any], windows: tuple[Any, ...], kind: Kind) -> Sent:
        output = Sent()
        origins = [WindowedValue(None, 0, windows) for _ in values]
        AssigningWindows(fn).run(values, origins, kind, output)
        return output

    one, two = (GlobalWindow(),), (IntervalWindow(0, 1), IntervalWindow(1, 2))
    for fn, windows in ((GlobalWindows(), one), (KeepingWindowFn(), one), (GlobalWindows(), two)):
        assert run(fn, ["a"], windows, Kind.PLAIN).chunks
        assert run(fn, ["a"], windows, Kind.OWN).chunks
    for kind in (Kind.OWN, Kind.NEW):
        assert run(GlobalWindows(), [["a"]], one, kind).chunks
        assert run(KeepingWindowFn(), [["a"]], one, kind).alone == [["a"]]
        assert run(GlobalWindows(), [["a"]], two, kind).alone == [["a"], ["a"]]
