"""Windows that merge, windows of the user's own, triggers: the panes are those of Beam's runner."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders.coders import IntervalWindowCoder
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.trigger import (
    AccumulationMode,
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterWatermark,
    Always,
    OrFinally,
    Repeatedly,
)
from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindow,
    GlobalWindows,
    IntervalWindow,
    NonMergingWindowFn,
    Sessions,
    SlidingWindows,
    TimestampCombiner,
    TimestampedValue,
    WindowFn,
)
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import PaneInfo, PaneInfoTiming

from beam_spark_runner.core.errors import BundleFailedError
from tests.harvest import Harvest, harvest, harvest_on, run

DISCARDING, ACCUMULATING = AccumulationMode.DISCARDING, AccumulationMode.ACCUMULATING


class Decades(NonMergingWindowFn):  # type: ignore[misc]
    """A user's window fn: ten seconds, begun at the last multiple of ten plus three."""

    def assign(self, context: WindowFn.AssignContext) -> Iterable[IntervalWindow]:
        start = (context.timestamp.micros // 1_000_000 - 3) // 10 * 10 + 3
        return [IntervalWindow(start, start + 10)]

    def get_window_coder(self) -> IntervalWindowCoder:
        return IntervalWindowCoder()


class Odd(NonMergingWindowFn):  # type: ignore[misc]
    """A window fn that is legal, but careless."""

    def __init__(self, windows: Callable[[int], Any]) -> None:
        self._windows = windows

    def assign(self, context: WindowFn.AssignContext) -> Any:
        return self._windows(context.timestamp.micros // 1_000_000)

    def get_window_coder(self) -> IntervalWindowCoder:
        return IntervalWindowCoder()


ODD: dict[str, Callable[[int], Any]] = {
    "nothing for odd seconds": lambda time: [] if time % 2 else [IntervalWindow(0, 100)],
    "late window first": lambda time: [
        IntervalWindow(time // 10 * 10 + start, time // 10 * 10 + start + 10)
        for start in (20, 0, 10, -10)
    ],
    "twice the same": lambda time: [IntervalWindow(0, 100)] * 2,
    "ends before it starts": lambda time: [IntervalWindow(10, 5)],
    "far from the element": lambda time: [IntervalWindow(10_000 - time, 10_001)],
}


class Neighbours(WindowFn):  # type: ignore[misc]
    """A user's merging window fn: windows that touch become one."""

    def assign(self, context: WindowFn.AssignContext) -> Iterable[IntervalWindow]:
        start = context.timestamp.micros // 1_000_000
        return [IntervalWindow(start, start + 2)]

    def get_window_coder(self) -> IntervalWindowCoder:
        return IntervalWindowCoder()

    def merge(self, merge_context: WindowFn.MergeContext) -> None:
        chain: list[IntervalWindow] = []
        for window in sorted(merge_context.windows, key=lambda each: each.start):
            if chain and window.start > max(each.end for each in chain):
                if len(chain) > 1:
                    merge_context.merge(chain, _span(chain))
                chain = []
            chain.append(window)
        if len(chain) > 1:
            merge_context.merge(chain, _span(chain))


def _span(windows: list[IntervalWindow]) -> IntervalWindow:
    return IntervalWindow(
        min(window.start for window in windows), max(window.end for window in windows)
    )


def _timed(pipeline: beam.Pipeline) -> beam.PCollection:
    """Two keys; for each a run of seconds, a gap, a run, and one lonely second."""
    times = [*range(0, 8), *range(30, 34), 90]
    return (
        pipeline
        | beam.Create([(key, time) for key in ("a", "b") for time in times])
        | beam.Map(lambda pair: TimestampedValue(pair, pair[1]))
    )


def _listed(key: str, values: Iterable[int]) -> tuple[str, list[int]]:
    return key, sorted(values)


def _millis(timestamp: Timestamp) -> int:
    """What an exchange keeps: Beam's coder cuts the rest off, also below zero."""
    return int(abs(timestamp.micros) // 1000 * (1 if timestamp.micros > 0 else -1))


def _panes(found: Harvest, label: str, *, only_last: bool = False) -> list[tuple[Any, ...]]:
    return sorted(
        (
            each.value,
            _millis(each.timestamp),
            str(each.window),
            # Not is_last, which Beam's runner does not know. See test_the_only_pane.
            (each.pane.is_first, each.pane.timing, each.pane.index),
        )
        for each in found.kept[label]
        if each.pane.is_last or not only_last
    )


WINDOWINGS: dict[str, Callable[[], beam.WindowInto]] = {
    "sessions": lambda: beam.WindowInto(Sessions(5)),
    "sessions, earliest": lambda: beam.WindowInto(
        Sessions(5), timestamp_combiner=TimestampCombiner.OUTPUT_AT_EARLIEST
    ),
    "sessions, latest": lambda: beam.WindowInto(
        Sessions(5), timestamp_combiner=TimestampCombiner.OUTPUT_AT_LATEST
    ),
    "own": lambda: beam.WindowInto(Decades()),
    "fixed, late": lambda: beam.WindowInto(
        FixedWindows(10),
        trigger=AfterWatermark(late=AfterCount(1)),
        accumulation_mode=ACCUMULATING,
        allowed_lateness=20,
    ),
    "fixed, early, discarding": lambda: beam.WindowInto(
        FixedWindows(10), trigger=AfterWatermark(early=AfterCount(3)), accumulation_mode=DISCARDING
    ),
    "fixed, early, accumulating": lambda: beam.WindowInto(
        FixedWindows(10),
        trigger=AfterWatermark(early=AfterCount(3)),
        accumulation_mode=ACCUMULATING,
    ),
    "global, always": lambda: beam.WindowInto(
        GlobalWindows(), trigger=Always(), accumulation_mode=DISCARDING
    ),
    "global, count": lambda: beam.WindowInto(
        GlobalWindows(), trigger=Repeatedly(AfterCount(4)), accumulation_mode=DISCARDING
    ),
    "sliding, any": lambda: beam.WindowInto(
        SlidingWindows(10, 5),
        trigger=Repeatedly(AfterAny(AfterCount(2), AfterCount(3))),
        accumulation_mode=ACCUMULATING,
    ),
    "sessions, count": lambda: beam.WindowInto(
        Sessions(5), trigger=Repeatedly(AfterCount(2)), accumulation_mode=DISCARDING
    ),
    "fixed, each": lambda: beam.WindowInto(
        FixedWindows(50),
        trigger=AfterEach(AfterCount(2), Repeatedly(AfterCount(3))),
        accumulation_mode=DISCARDING,
    ),
    "fixed, or finally": lambda: beam.WindowInto(
        FixedWindows(50),
        trigger=OrFinally(Repeatedly(AfterCount(2)), AfterAll(AfterCount(5))),
        accumulation_mode=DISCARDING,
    ),
}


def test_panes_are_those_of_beams_own_runner(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        timed = _timed(p)
        made = {}
        for name, windowing in WINDOWINGS.items():
            windowed = timed | f"into {name}" >> windowing()
            grouped = windowed | f"group {name}" >> beam.GroupByKey()
            made[f"{name}: groups"] = grouped | f"list {name}" >> beam.MapTuple(_listed)
            made[f"{name}: sums"] = windowed | f"sum {name}" >> beam.CombinePerKey(sum)
        return made

    ours = harvest(spark_session, build, "--allow_unsafe_triggers")
    beams = harvest_on(FnApiRunner(), build, "--allow_unsafe_triggers")
    for label in beams.kept:
        if label.startswith("global, always"):
            # Beam groups by a short cut there, whose pane is on time at the beginning of time.
            (kept,) = {(each.pane.timing, _millis(each.timestamp)) for each in ours.kept[label]}
            assert kept == (PaneInfoTiming.EARLY, _millis(GlobalWindow().max_timestamp()))
            assert ours[label] == beams[label]
        else:
            found, expected = (Counter(map(repr, _panes(each, label))) for each in (ours, beams))
            # What no trigger has fired, Beam drops.
            lasts = Counter(map(repr, _panes(ours, label, only_last=True)))
            assert found - lasts <= expected <= found, label
        assert beams.kept[label], label


@pytest.mark.parametrize("windows", ODD.values(), ids=ODD)
def test_careless_window_fns_give_what_beams_own_runner_gives(
    spark_session: Any, windows: Callable[[int], Any]
) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        windowed = _timed(p) | beam.WindowInto(Odd(windows))
        return {
            "as they are": windowed,
            "spread": windowed | beam.Reshuffle(),
            "groups": windowed | beam.GroupByKey() | beam.MapTuple(_listed),
            "sums": windowed | beam.CombinePerKey(sum),
        }

    ours, beams = harvest(spark_session, build), harvest_on(FnApiRunner(), build)
    for label in beams.kept:
        assert _panes(ours, label) == _panes(beams, label), label
        assert beams.kept[label], label


def test_a_window_fn_that_forgets_to_return(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> None:
        windowed = _timed(p) | "into" >> beam.WindowInto(Odd(lambda time: None))
        windowed | beam.GroupByKey() | "use" >> beam.Map(id)

    with pytest.raises(BundleFailedError, match="'NoneType' object is not iterable") as caught:
        run(spark_session, build)
    assert caught.value.step == "into"


@pytest.mark.parametrize("beyond", [-1, 1])
def test_a_time_that_beam_does_not_have(spark_session: Any, beyond: int) -> None:
    end = MAX_TIMESTAMP if beyond > 0 else MIN_TIMESTAMP

    def build(p: beam.Pipeline) -> dict[str, Any]:
        stamp = beam.Map(lambda x: TimestampedValue(x, end.micros / 1_000_000 + beyond))
        return {"stamped": p | beam.Create([1]) | "stamp" >> stamp}

    with pytest.raises(BundleFailedError, match="OverflowError") as caught:
        harvest(spark_session, build)
    assert caught.value.step == "stamp"


def test_the_ends_of_time(spark_session: Any) -> None:
    ends = [MIN_TIMESTAMP, GlobalWindow().max_timestamp(), MAX_TIMESTAMP]

    def build(p: beam.Pipeline) -> dict[str, Any]:
        stamped = (
            p | beam.Create(range(3)) | beam.Map(lambda n: TimestampedValue(("a", n), ends[n]))
        )
        return {
            "as they are": stamped,
            "groups": stamped
            | beam.WindowInto(FixedWindows(10))
            | beam.GroupByKey()
            | beam.MapTuple(_listed),
        }

    ours, beams = harvest(spark_session, build), harvest_on(FnApiRunner(), build)
    for label in beams.kept:
        assert _panes(ours, label) == _panes(beams, label), label
        assert len(beams.kept[label]) == 3


def test_merging_windows_of_the_users_own(spark_session: Any) -> None:
    """Beam's runner hands such a window fn's payload to the wrong unpickler."""
    found = harvest(
        spark_session,
        lambda p: {"sums": _timed(p) | beam.WindowInto(Neighbours()) | beam.CombinePerKey(sum)},
    )
    assert sorted((value, str(each)) for value, _, each, *_ in found.kept["sums"]) == sorted(
        ((key, total), window)
        for key in "ab"
        for total, window in ((28, "[0.0, 9.0)"), (126, "[30.0, 35.0)"), (90, "[90.0, 92.0)"))
    )


def test_processing_time_stands_still(spark_session: Any) -> None:
    """Beam's runner has no clock for it in batch; all elements are there before it moves."""
    found = harvest(
        spark_session,
        lambda p: {
            "sums": _timed(p)
            | beam.WindowInto(
                GlobalWindows(),
                trigger=Repeatedly(AfterProcessingTime(1)),
                accumulation_mode=DISCARDING,
            )
            | beam.CombinePerKey(sum),
        },
    )
    assert found["sums"] == [(key, 28 + 126 + 90) for key in "ab"]


def test_sessions(spark_session: Any) -> None:
    """The same in numbers, not only by comparison."""
    found = harvest(
        spark_session,
        lambda p: {
            "sums": _timed(p) | beam.WindowInto(Sessions(5)) | beam.CombinePerKey(sum),
        },
    )
    assert found["sums"] == sorted(
        (key, sum(times)) for key in "ab" for times in (range(8), range(30, 34), [90])
    )
    assert {str(each.window) for each in found.kept["sums"]} == {
        "[0.0, 12.0)",
        "[30.0, 38.0)",
        "[90.0, 95.0)",
    }


@pytest.mark.parametrize(
    ("window_fn", "is_last"),
    [
        (GlobalWindows(), True),
        (FixedWindows(10), True),
        (Decades(), True),
        (Sessions(5), False),  # by Beam's own tests: ReshuffleTest in transforms/util_test.py
    ],
)
def test_the_only_pane(spark_session: Any, window_fn: Any, is_last: bool) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        windowed = _timed(p) | beam.WindowInto(window_fn)
        return {"groups": windowed | beam.GroupByKey(), "sums": windowed | beam.CombinePerKey(sum)}

    found = harvest(spark_session, build)
    for label in ("groups", "sums"):
        panes = {each.pane for each in found.kept[label]}
        assert panes == {PaneInfo(True, is_last, PaneInfoTiming.ON_TIME, 0, 0)}
